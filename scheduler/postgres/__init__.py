"""Everything that depends on SQL."""
