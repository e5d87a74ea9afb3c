-- List the problems that exist now, except dead runs: each with its subject, tenant and begin.
SELECT 'behind' AS kind, '' AS subject, NULL AS tenant, since
FROM (SELECT least(
          (SELECT wake_at FROM jobs WHERE status = 'pending' AND wake_at <= now() ORDER BY wake_at LIMIT 1),
          (SELECT least(next_run_at, trigger_at) FROM jobs
           WHERE status = 'pending' AND retry_at IS NOT NULL AND held_by IS NULL AND retries > 0
           ORDER BY least(next_run_at, trigger_at) LIMIT 1)) AS since) AS oldest
WHERE since < now() - %(late)s * interval '1 second'
UNION ALL
SELECT 'runs_overdue', '', NULL, min(wake_at)
FROM (SELECT wake_at FROM runs WHERE wake_at < now() - %(late)s * interval '1 second' ORDER BY wake_at LIMIT 1) AS overdue
HAVING count(*) > 0
UNION ALL
SELECT 'worker_lost', host || ':' || pid, NULL, last_seen_at
FROM (SELECT host, pid, last_seen_at FROM workers
      WHERE last_seen_at < now() - %(stale_after)s * interval '1 second'
      ORDER BY last_seen_at DESC, host, pid LIMIT %(most)s) AS lost
UNION ALL
SELECT 'calendar_expiring', name, tenant, valid_until::timestamp AT TIME ZONE 'UTC'
FROM (SELECT name, tenant, valid_until,
             row_number() OVER (PARTITION BY tenant ORDER BY valid_until DESC, name) AS number
      FROM calendars
      WHERE content IS NOT NULL AND valid_until < (now() AT TIME ZONE 'UTC')::date + 30) AS calendars
WHERE number <= %(most)s
  AND EXISTS (SELECT FROM jobs
              WHERE jobs.calendar = calendars.name AND jobs.status IN ('pending', 'paused')
                AND CASE WHEN calendars.tenant <> '*' THEN jobs.tenant = calendars.tenant
                         ELSE NOT EXISTS (SELECT FROM calendars AS own
                                          WHERE own.name = calendars.name AND own.tenant = jobs.tenant
                                            AND own.content IS NOT NULL) END)
