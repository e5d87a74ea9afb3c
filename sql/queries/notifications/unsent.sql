-- List what was not sent yet, oldest first, with the job and the error of a dead run; and how many more there are.
SELECT kind, subject, notifications.tenant, event_id::text, firing, since, key, jobs.name, jobs.job_type,
       (SELECT left(error, 500) FROM run_history WHERE run_history.event_id = notifications.event_id LIMIT 1) AS error,
       (SELECT count(*) FROM notifications WHERE NOT sent) AS unsent
FROM notifications LEFT JOIN jobs ON kind = 'run_dead' AND jobs.id = CASE WHEN kind = 'run_dead' THEN subject::uuid END
WHERE NOT sent
ORDER BY changed_at, key
LIMIT %(most)s
