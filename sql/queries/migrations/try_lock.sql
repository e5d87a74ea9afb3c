-- One replica migrates at a time. Asked for again and again, not waited for: who waits here holds a snapshot, and an
-- index that is made concurrently waits for every snapshot.
SELECT pg_try_advisory_lock(%(lock)s)
