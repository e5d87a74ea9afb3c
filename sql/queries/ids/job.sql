-- List jobs whose ids are in a range.
SELECT id::text, status::text, job_type, name
FROM jobs
WHERE id BETWEEN %(first)s AND %(last)s
ORDER BY id
LIMIT %(limit)s
