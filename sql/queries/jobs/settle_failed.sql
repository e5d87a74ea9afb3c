-- Postpone jobs whose event was rejected; jobs whose event was not confirmed are due at once. The last problem and the
-- number of rejections remain after a success.
UPDATE jobs
SET retries = retries + CASE WHEN delay IS NULL THEN 0 ELSE 1 END,
    retry_at = CASE WHEN delay IS NULL THEN retry_at ELSE clock_timestamp() + make_interval(secs => delay) END,
    held_by = NULL,
    last_problem = problem, last_problem_at = clock_timestamp(), last_problem_due_at = due_at,
    last_refusals = CASE WHEN last_problem_due_at = due_at THEN last_refusals ELSE 0 END + 1
FROM unnest(%(ids)s::uuid[], %(delays)s::float8[], %(due_at)s::timestamptz[], %(problems)s::text[])
     AS settled (job_id, delay, due_at, problem)
WHERE id = job_id
