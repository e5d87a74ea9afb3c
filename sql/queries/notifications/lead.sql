-- Try to become the session that notifies.
SELECT pg_try_advisory_lock(%(key)s)
