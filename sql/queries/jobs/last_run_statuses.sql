-- How the newest run of each of these tracked jobs fares. A run ends after it was due, so that older days of the history
-- are left out. By itself, because to plan it takes longer than to read a page of jobs, and most are not tracked.
SELECT id::text, coalesce(
    (SELECT status::text FROM runs WHERE job_id = tracked.id AND due_at IS NOT NULL ORDER BY due_at DESC LIMIT 1),
    (SELECT status::text FROM run_history
     WHERE job_id = tracked.id AND finished_at >= tracked.last_due_at - interval '1 day'
     ORDER BY due_at DESC LIMIT 1)
)
FROM unnest(%(ids)s::uuid[], %(last_due_ats)s::timestamptz[]) AS tracked (id, last_due_at)
