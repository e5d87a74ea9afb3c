-- Acquire the table locks that settling needs, not those of partitions, without waiting.
LOCK TABLE ONLY {tables} IN ROW EXCLUSIVE MODE NOWAIT;
