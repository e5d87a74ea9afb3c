"""Everything that knows SQL."""
