-- Return the seconds since the oldest job that is not emitted was due. A rejected event waits for its retry but has been
-- due since its occurrence; a job that waits for its own open run is not late.
SELECT coalesce(extract(epoch FROM now() - least(
    (SELECT wake_at FROM jobs WHERE status = 'pending' AND wake_at <= now() ORDER BY wake_at LIMIT 1),
    (SELECT least(next_run_at, trigger_at) FROM jobs
     WHERE status = 'pending' AND retry_at IS NOT NULL AND held_by IS NULL AND retries > 0
     ORDER BY least(next_run_at, trigger_at) LIMIT 1)
)), 0)::float8
