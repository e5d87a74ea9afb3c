-- One job as people see it.
SELECT {selected}, {beside}
FROM jobs
WHERE id = %(id)s::uuid AND job_type IS NOT NULL
