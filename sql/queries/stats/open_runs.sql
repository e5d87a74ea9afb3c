-- Count open runs by status, up to a limit.
SELECT status::text, count(*)
FROM (SELECT status FROM runs WHERE
  job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s) AS few
GROUP BY status
