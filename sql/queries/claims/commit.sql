-- Keep what was done and let go of what is locked.
COMMIT
