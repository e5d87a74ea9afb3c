-- Hold jobs while one of their runs is open. The end of the run releases them; the retry covers processes that die
-- before that.
UPDATE jobs
SET retry_at = clock_timestamp() + interval '30 seconds', held_by = event_id
FROM unnest(%(ids)s::uuid[], %(event_ids)s::uuid[]) AS settled (job_id, event_id)
WHERE id = job_id
