-- Have jobs wait for an open run of theirs. They are let go when it ends; a look now and then makes sure of that.
UPDATE jobs
SET retry_at = clock_timestamp() + interval '30 seconds', held_by = event_id
FROM unnest(%(ids)s::uuid[], %(event_ids)s::uuid[]) AS settled (job_id, event_id)
WHERE id = job_id
