-- Copy rows under a savepoint, on one round trip.
SAVEPOINT recording; {copy}; RELEASE SAVEPOINT recording
