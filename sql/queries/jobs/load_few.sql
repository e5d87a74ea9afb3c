-- All matching pending jobs, if they are few, without payloads. OFFSET 0 prevents the planner from scanning all jobs.
SELECT {selected}
FROM (SELECT id AS matching FROM ({newest}) AS newest LIMIT %(limit)s) AS few
CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.id = few.matching OFFSET 0) AS jobs
WHERE next_run_at IS NOT NULL
