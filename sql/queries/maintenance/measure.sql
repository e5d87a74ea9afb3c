-- Measure due rows and estimate pending ones by index scans with a row limit, so that ten million pending rows cost no
-- more than a hundred thousand. A rejected event waits for its retry but has been due since its occurrence; a job that
-- waits for its own open run or for its window (no `retries`) is not late. Then the due rows of high and low priority,
-- the open, overdue and dead runs, an estimate of the pending delayed messages, and the calendars that expire.
SELECT (SELECT count(*)
        FROM (SELECT FROM jobs WHERE status = 'pending' AND wake_at <= now() LIMIT %(most)s) AS due)
     + (SELECT count(*)
        FROM (SELECT FROM jobs
              WHERE status = 'pending' AND retry_at IS NOT NULL AND retry_at > now() AND held_by IS NULL AND retries > 0
              LIMIT %(most)s) AS refused) AS due,
       extract(epoch FROM now() - least(
           (SELECT wake_at FROM jobs
            WHERE status = 'pending' AND wake_at <= now() ORDER BY wake_at LIMIT 1),
           (SELECT least(next_run_at, trigger_at) FROM jobs
            WHERE status = 'pending' AND retry_at IS NOT NULL AND held_by IS NULL AND retries > 0
            ORDER BY least(next_run_at, trigger_at) LIMIT 1)
       ))::float8 AS oldest_age,
       -- ANALYZE estimates the rows of a partial index, which is enough beyond a few.
       (SELECT CASE WHEN count(*) < %(few)s THEN count(*) ELSE greatest(count(*),
                   (SELECT reltuples::bigint FROM pg_class WHERE oid = 'jobs_due'::regclass)) END
        FROM (SELECT FROM jobs WHERE status = 'pending' LIMIT %(few)s) AS counted) AS pending,
       (SELECT count(*)
        FROM (SELECT FROM jobs
              WHERE status = 'pending' AND coalesce(priority, 'normal') = 'high' AND wake_at <= now()
              LIMIT %(most)s) AS high) AS due_high,
       (SELECT count(*)
        FROM (SELECT FROM jobs
              WHERE status = 'pending' AND coalesce(priority, 'normal') = 'low' AND wake_at <= now()
              LIMIT %(most)s) AS low) AS due_low,
       (SELECT count(*) FROM (SELECT FROM runs WHERE wake_at > '-infinity' LIMIT %(most)s) AS open) AS runs_open,
       (SELECT count(*)
        FROM (SELECT FROM runs WHERE wake_at < now() - interval '30 seconds' LIMIT %(most)s) AS overdue) AS runs_overdue,
       (SELECT count(*) FROM (SELECT FROM run_history WHERE status = 'dead' LIMIT %(most)s) AS dead) AS runs_dead,
       (SELECT CASE WHEN count(*) < %(few)s THEN count(*) ELSE greatest(count(*),
                   (SELECT reltuples::bigint FROM pg_class WHERE oid = 'delayed_messages'::regclass)) END
        FROM (SELECT FROM delayed_messages WHERE wake_at > '-infinity' AND exchange IS NOT NULL
              LIMIT %(few)s) AS counted) AS delayed,
       -- Calendars that pending or paused jobs use and whose listed dates end within 30 days.
       (SELECT count(*)
        FROM calendars
        WHERE content IS NOT NULL AND valid_until < (now() AT TIME ZONE 'UTC')::date + 30
          AND EXISTS (SELECT FROM jobs
                      WHERE jobs.calendar = calendars.name AND jobs.status IN ('pending', 'paused')
                        AND CASE WHEN calendars.tenant <> '*' THEN jobs.tenant = calendars.tenant
                                 ELSE NOT EXISTS (SELECT FROM calendars AS own
                                                  WHERE own.name = calendars.name AND own.tenant = jobs.tenant
                                                    AND own.content IS NOT NULL) END)) AS calendars_expiring
