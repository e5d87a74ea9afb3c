"""Jobs: definition, transitions and emission."""
