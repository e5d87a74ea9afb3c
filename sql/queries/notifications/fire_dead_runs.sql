-- Record the jobs whose run has died since the newest one on record, once until the job succeeds again. The runs of the
-- last minutes are read again: a run that died earlier may be committed later.
WITH dead AS (
    SELECT job_id, run_history.tenant, run_history.event_id, finished_at
    FROM run_history, notifications AS place
    WHERE place.key = 'place:' AND status = 'dead'
      AND finished_at > greatest(place.since - interval '5 minutes', place.changed_at)
    ORDER BY finished_at LIMIT %(most)s
), moved AS (
    UPDATE notifications SET since = newest.finished_at
    FROM (SELECT max(finished_at) AS finished_at FROM dead) AS newest
    WHERE key = 'place:' AND newest.finished_at > since
)
INSERT INTO notifications (key, kind, subject, tenant, event_id, firing, since)
SELECT DISTINCT ON (job_id) 'run_dead:' || job_id, 'run_dead', job_id::text, nullif(tenant, 'default'), event_id, true,
       finished_at
FROM dead
WHERE NOT EXISTS (SELECT FROM run_history AS later
                  WHERE later.job_id = dead.job_id AND later.status = 'succeeded'
                    AND later.finished_at > dead.finished_at)
ORDER BY job_id, finished_at DESC
ON CONFLICT (key) DO UPDATE
SET firing = true, since = excluded.since, event_id = excluded.event_id, sent = false, changed_at = now()
WHERE NOT notifications.firing AND excluded.since > notifications.since
