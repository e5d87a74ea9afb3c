-- Keep the jobs whose event was refused: still due, tried again later. Why and how often is kept beyond the success.
UPDATE jobs
SET retries = retries + 1, retry_at = clock_timestamp() + make_interval(secs => delay),
    last_problem = problem, last_problem_at = clock_timestamp(), last_problem_due_at = due_at,
    last_refusals = retries + 1
FROM unnest(%(ids)s::uuid[], %(delays)s::float8[], %(due_at)s::timestamptz[], %(problems)s::text[])
     AS settled (job_id, delay, due_at, problem)
WHERE id = job_id
