-- Lock the jobs that are not due yet and that no other transaction has locked. A job that is due is emitted
-- as planned: it may have been published already.
SELECT {selected}
FROM jobs
WHERE id = ANY (%(ids)s::uuid[]) AND status IN ('pending', 'paused') AND (next_run_at > now() OR next_run_at IS NULL)
FOR UPDATE SKIP LOCKED
