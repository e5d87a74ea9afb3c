"""Store, cancel, claim and settle delayed messages."""
