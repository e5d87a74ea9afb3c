-- Count due jobs that are not emitted, up to a limit, and the seconds since the oldest was due.
SELECT count(*), coalesce(max(extract(epoch FROM now() - due)), 0)::float8
FROM (
    (SELECT wake_at AS due FROM jobs WHERE status = 'pending' AND wake_at <= now()
      AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
     ORDER BY wake_at LIMIT %(most)s)
    UNION ALL
    (SELECT least(next_run_at, trigger_at) FROM jobs
     WHERE status = 'pending' AND retry_at IS NOT NULL AND retry_at > now() AND held_by IS NULL
       AND retries > 0
       AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
     LIMIT %(most)s)
) AS due
