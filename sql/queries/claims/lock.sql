-- Take the locks that settling needs, of tables but not of their partitions, without waiting.
LOCK TABLE ONLY {tables} IN ROW EXCLUSIVE MODE NOWAIT;
