-- Acquire the table locks that settling needs, without waiting; partitions are not locked.
LOCK TABLE ONLY {tables} IN ROW EXCLUSIVE MODE NOWAIT;
