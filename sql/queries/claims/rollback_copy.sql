-- Undo a failed copy.
ROLLBACK TO SAVEPOINT recording; RELEASE SAVEPOINT recording
