"""Jobs as rows: their columns, how commands are stored, and how what is due is claimed and settled."""
