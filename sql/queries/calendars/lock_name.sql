-- Lock the calendars with one name until the transaction ends: shared to plan a job with one, exclusive to change one.
-- Then every job that was planned with the old content is visible to the session that plans the jobs again.
SELECT pg_advisory_xact_lock{shared}(%(space)s, hashtext(%(name)s))
