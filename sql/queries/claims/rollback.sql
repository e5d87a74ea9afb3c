-- Let go of what is locked, unchanged.
ROLLBACK
