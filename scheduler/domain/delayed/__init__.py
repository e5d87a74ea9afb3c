"""A message that comes out later: when, and as what."""
