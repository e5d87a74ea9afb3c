-- Go back to that mark.
ROLLBACK TO SAVEPOINT recording
