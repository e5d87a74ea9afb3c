-- Return the state of the whole sidecar for all browsers at once: backlog, runs, live replicas with their recent
-- activity, and the next due jobs. Failures are included only on request, because they read more rows.
WITH measured AS ({measure})
SELECT measured.*, now() AS at,
       (SELECT coalesce(json_agg(each ORDER BY role, started_at), '[]')
        FROM (SELECT id, role, host, pid, version, started_at, last_seen_at, recent FROM replicas) AS each) AS replicas,
       (SELECT coalesce(json_agg(each ORDER BY started_at), '[]')
        FROM (SELECT id, host, pid, version, started_at, last_seen_at, offers, in_flight, busy, succeeded, failed, snoozed,
                     offer_tenants
              FROM workers
              ORDER BY last_seen_at DESC LIMIT %(most_workers)s) AS each) AS workers,
       (SELECT coalesce(json_agg(each ORDER BY wake_at), '[]')
        FROM (SELECT id, tenant, name, job_type, wake_at, retries
              FROM jobs
              WHERE status = 'pending' AND wake_at > '-infinity'
              ORDER BY wake_at LIMIT %(most_next)s) AS each) AS upcoming,
       CASE WHEN %(with_failures)s THEN
           (SELECT coalesce(json_agg(each), '[]')
            FROM (SELECT tenant, job_type, sum(dead)::int AS dead, sum(waiting)::int AS waiting,
                         count(DISTINCT job_id)::int AS jobs, (array_agg(job_id ORDER BY at DESC))[1] AS job_id,
                         (array_agg(event_id ORDER BY at DESC))[1] AS event_id,
                         (array_agg(left(error, 200) ORDER BY at DESC))[1] AS error
                  FROM ((SELECT tenant, job_type, job_id, event_id, error, finished_at AS at, 1 AS dead, 0 AS waiting
                         FROM run_history
                         WHERE status = 'dead' AND finished_at > now() - interval '1 day'
                         ORDER BY finished_at DESC LIMIT %(most_failed)s)
                        UNION ALL
                        (SELECT tenant, job_type, job_id, event_id, error, emitted_at, 0, 1
                         FROM runs
                         WHERE status = 'waiting' AND wake_at > '-infinity' LIMIT %(most_failed)s)) AS failed
                  GROUP BY tenant, job_type
                  ORDER BY dead DESC, waiting DESC LIMIT %(most_next)s) AS each)
       END AS failing
FROM measured
