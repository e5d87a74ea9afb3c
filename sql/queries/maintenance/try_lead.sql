-- Become the only session that maintains the history's partitions, until the session ends.
SELECT pg_try_advisory_lock(%(lock)s)
