-- One replica migrates at a time: the others wait, and then find nothing to do.
SELECT pg_advisory_lock(%(lock)s)
