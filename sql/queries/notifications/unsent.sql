-- List what was not sent yet, the oldest of each tenant first, with the job and the error of a dead run; and how many
-- more there are.
SELECT kind, subject, unsent.tenant, event_id::text, firing, since, key, jobs.name, jobs.job_type,
       (SELECT left(error, 500) FROM run_history WHERE run_history.event_id = unsent.event_id LIMIT 1) AS error,
       number
FROM (SELECT *, count(*) OVER () AS number, row_number() OVER (PARTITION BY tenant, kind ORDER BY changed_at, key) AS turn
      FROM notifications WHERE NOT sent ORDER BY turn, changed_at, key LIMIT %(most)s) AS unsent
LEFT JOIN jobs ON kind = 'run_dead' AND jobs.id = CASE WHEN kind = 'run_dead' THEN subject::uuid END
ORDER BY turn, changed_at, key
