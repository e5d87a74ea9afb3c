-- Roll back and release the claimed rows unchanged.
ROLLBACK
