-- Mark where the transaction stands.
SAVEPOINT recording
