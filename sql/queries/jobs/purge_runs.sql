-- Delete the open runs of a job and some of the finished ones, and return their event ids.
WITH opened AS (
    DELETE FROM runs WHERE job_id = %(job_id)s RETURNING event_id
), finished AS (
    DELETE FROM run_history
    WHERE (event_id, finished_at) IN (
        SELECT event_id, finished_at FROM run_history WHERE job_id = %(job_id)s LIMIT %(most)s)
    RETURNING event_id
)
SELECT event_id::text FROM opened UNION ALL SELECT event_id::text FROM finished
