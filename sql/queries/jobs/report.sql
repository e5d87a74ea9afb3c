-- Return one job with its last event, the database's time and the number of live replicas. `is_locked` is true while the
-- transaction that last locked the row is open; this check takes no lock.
SELECT id, status::text AS status, job_type, name, description, tenant, route, payload::text AS payload,
       target::text AS target,
       rrule, cron, every, timezone, starts_at, start_source IS NOT DISTINCT FROM 'manual' AS manual,
       next_run_at, occurrence, retries, retry_at, triggers, trigger_at, triggered_at, wake_at,
       requested_at, cancelled_at, paused_at, resumed_at, created_at, finished_at,
       last_due_at, last_emitted_at, last_confirmed_at,
       last_problem, last_problem_at, last_problem_due_at, last_refusals,
       EXISTS (SELECT FROM pg_locks
               WHERE locktype = 'transactionid' AND granted AND transactionid = jobs.xmax) AS in_hand,
       live.producers, live.consumers, now() AS now
FROM jobs,
     (SELECT count(*) FILTER (WHERE role = 'producer') AS producers,
             count(*) FILTER (WHERE role = 'consumer') AS consumers
      FROM replicas
      WHERE last_seen_at > now() - make_interval(secs => %(stale_after)s)) AS live
WHERE id = %(id)s
