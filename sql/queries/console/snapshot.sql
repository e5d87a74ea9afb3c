-- Return the state of the whole sidecar for all browsers at once: backlog, runs, live replicas with their recent
-- activity, and the next due jobs. Failures are included only on request, because they read more rows.
WITH measured AS ({measure}),
-- Read only if a failure is requested.
failed AS MATERIALIZED (
    (SELECT tenant, job_type, job_id, event_id, error, finished_at AS at, 1 AS dead, 0 AS waiting
     FROM run_history
     WHERE status = 'dead' AND finished_at > now() - interval '1 day'
     ORDER BY finished_at DESC LIMIT %(most_failed)s)
    UNION ALL
    (SELECT tenant, job_type, job_id, event_id, error, emitted_at, 0, 1
     FROM runs
     WHERE status = 'waiting' AND wake_at > '-infinity' LIMIT %(most_failed)s))
SELECT measured.*, now() AS at,
       (SELECT coalesce(json_agg(each ORDER BY role, started_at), '[]')
        FROM (SELECT id, role, host, pid, version, started_at, last_seen_at, recent FROM replicas) AS each) AS replicas,
       (SELECT coalesce(json_agg(each ORDER BY started_at), '[]')
        FROM (SELECT id, host, pid, version, started_at, last_seen_at, offers, in_flight, busy, succeeded, failed, snoozed,
                     offer_tenants, platform, pools, capacity
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
                  FROM failed
                  GROUP BY tenant, job_type
                  ORDER BY dead DESC, waiting DESC LIMIT %(most_next)s) AS each)
       END AS failing,
       CASE WHEN %(with_failures)s THEN json_build_object(
           'errors', (SELECT coalesce(json_agg(each), '[]')
                      FROM (SELECT tenant, left(error, 200) AS error, count(DISTINCT job_id)::int AS jobs,
                                   sum(dead)::int AS dead, sum(waiting)::int AS waiting, min(at) AS since,
                                   count(DISTINCT job_type)::int AS types, min(job_type) AS job_type,
                                   (array_agg(event_id ORDER BY at DESC))[1] AS event_id
                            FROM failed
                            WHERE error IS NOT NULL
                            GROUP BY tenant, left(error, 200)
                            HAVING sum(waiting) > 0 OR max(at) > now() - interval '15 minutes'
                            ORDER BY jobs DESC LIMIT %(most_next)s) AS each),
           'refused', (SELECT coalesce(json_agg(each), '[]')
                       FROM (SELECT tenant, last_problem AS problem, count(*)::int AS jobs, min(due_at) AS since
                             FROM (SELECT tenant, last_problem, held_by, retries, least(next_run_at, trigger_at) AS due_at
                                   FROM jobs
                                   WHERE status = 'pending' AND retry_at IS NOT NULL
                                   ORDER BY least(next_run_at, trigger_at) LIMIT %(most_failed)s) AS refused
                             WHERE held_by IS NULL AND retries > 0
                             GROUP BY tenant, last_problem
                             ORDER BY jobs DESC LIMIT %(most_next)s) AS each),
           'due', (SELECT coalesce(json_agg(each), '[]')
                   FROM (SELECT tenant, count(*)::int AS jobs, min(wake_at) AS since
                         FROM (SELECT tenant, wake_at
                               FROM jobs
                               WHERE status = 'pending' AND wake_at <= now() - interval '5 seconds'
                               ORDER BY wake_at LIMIT %(most_failed)s) AS due
                         GROUP BY tenant
                         ORDER BY jobs DESC LIMIT %(most_next)s) AS each))
       END AS causes
FROM measured
