-- Undo a copy that failed.
ROLLBACK TO SAVEPOINT recording; RELEASE SAVEPOINT recording
