-- Allow one replica to migrate at a time. Callers poll instead of waiting: a waiting session holds a snapshot, and a
-- concurrent index build waits for every snapshot.
SELECT pg_try_advisory_lock(%(lock)s)
