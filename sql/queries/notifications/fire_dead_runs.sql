-- Record the jobs whose run has died, once until the job succeeds again. Runs from the last minutes are included again: a
-- run that died earlier may be committed later. Of each tenant a limited number in an hour is recorded; one more
-- notification, whose subject is their number, stands for the others.
WITH place AS (
    SELECT since, changed_at FROM notifications WHERE key = 'place:'
), dead AS (
    SELECT older.*, false AS new FROM place, LATERAL (
        SELECT job_id, coalesce(tenant, 'default') AS tenant, event_id, finished_at FROM run_history
        WHERE status = 'dead' AND finished_at <= place.since
          AND finished_at > greatest(place.since - interval '5 minutes', place.changed_at)
        ORDER BY finished_at DESC LIMIT %(read)s) AS older
    UNION ALL
    SELECT newer.*, true FROM place, LATERAL (
        SELECT job_id, coalesce(tenant, 'default'), event_id, finished_at FROM run_history
        WHERE status = 'dead' AND finished_at > place.since
        ORDER BY finished_at LIMIT %(read)s) AS newer
), moved AS (
    UPDATE notifications SET since = newest.finished_at
    FROM (SELECT max(finished_at) AS finished_at FROM dead) AS newest
    WHERE key = 'place:' AND newest.finished_at > since
), latest AS (
    SELECT DISTINCT ON (job_id) * FROM dead ORDER BY job_id, finished_at DESC
), recent AS (
    SELECT coalesce(tenant, 'default') AS tenant, count(*) AS recorded FROM notifications
    WHERE kind = 'run_dead' AND (NOT sent OR changed_at > now() - interval '1 hour')
    GROUP BY 1
), ranked AS (
    SELECT latest.*, row_number() OVER (PARTITION BY latest.tenant ORDER BY finished_at DESC)
                     > %(of_tenant)s - coalesce(recorded, 0) AS omitted
    FROM latest LEFT JOIN recent ON recent.tenant = latest.tenant
    WHERE NOT EXISTS (SELECT FROM notifications AS known
                      WHERE known.key = 'run_dead:' || job_id AND (known.firing OR known.since >= finished_at))
), counted AS (
    INSERT INTO notifications AS known (key, kind, subject, tenant, firing, since)
    SELECT 'runs_dead:' || tenant, 'runs_dead', count(*), nullif(tenant, 'default'), true, min(finished_at)
    FROM ranked WHERE omitted AND new GROUP BY tenant
    ON CONFLICT (key) DO UPDATE
    SET subject = CASE WHEN known.firing THEN known.subject::bigint + excluded.subject::bigint
                       ELSE excluded.subject::bigint END,
        since = CASE WHEN known.firing THEN known.since ELSE excluded.since END,
        sent = known.sent AND known.firing, firing = true, changed_at = now()
)
INSERT INTO notifications (key, kind, subject, tenant, event_id, firing, since)
SELECT 'run_dead:' || job_id, 'run_dead', job_id::text, nullif(tenant, 'default'), event_id, true, finished_at
FROM ranked
WHERE NOT omitted
  AND NOT EXISTS (SELECT FROM run_history AS later
                  WHERE later.job_id = ranked.job_id AND later.status = 'succeeded'
                    AND later.finished_at > ranked.finished_at)
ON CONFLICT (key) DO UPDATE
SET firing = true, since = excluded.since, event_id = excluded.event_id, sent = false, changed_at = now()
WHERE NOT notifications.firing AND excluded.since > notifications.since
