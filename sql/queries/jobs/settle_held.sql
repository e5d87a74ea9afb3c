-- Hold jobs while a run of theirs is open. They are released when it ends; the retry is for processes that die before that.
UPDATE jobs
SET retry_at = clock_timestamp() + interval '30 seconds', held_by = event_id
FROM unnest(%(ids)s::uuid[], %(event_ids)s::uuid[]) AS settled (job_id, event_id)
WHERE id = job_id
