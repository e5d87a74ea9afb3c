-- Count pending and paused jobs by type, up to a limit of each status; beyond it, counts are of that sample.
SELECT job_type, count(*)
FROM (
    (SELECT job_type FROM jobs WHERE status = 'pending'
      AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s)
    UNION ALL
    (SELECT job_type FROM jobs WHERE status = 'paused'
      AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s)
) AS live
GROUP BY job_type
