-- One job with its list columns.
SELECT {selected}, {beside}
FROM jobs
WHERE id = $1::uuid AND job_type IS NOT NULL
