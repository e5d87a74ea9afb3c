-- What people see of a job beside its own fields; of a tracked one how its newest run fares. A run ends after it was due,
-- so that older days of the history are left out.
created_at, coalesce(updated_at, created_at) AS updated_at, created_by, updated_by,
last_due_at, last_emitted_at, last_problem,
CASE WHEN run IS NOT NULL THEN coalesce(
    (SELECT status::text FROM runs WHERE job_id = jobs.id AND due_at IS NOT NULL ORDER BY due_at DESC LIMIT 1),
    (SELECT status::text FROM run_history
     WHERE job_id = jobs.id AND finished_at >= jobs.last_due_at - interval '1 day'
     ORDER BY due_at DESC LIMIT 1)
) END AS last_run_status
