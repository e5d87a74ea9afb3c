"""Database access: all SQL is called from here."""
