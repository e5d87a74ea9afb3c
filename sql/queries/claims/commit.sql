-- Commit and release the claimed rows.
COMMIT
