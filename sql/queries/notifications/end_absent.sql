-- End the problems that exist no longer. One that was never sent is forgotten, as is a worker that stays away.
WITH absent AS (
    SELECT key, NOT sent OR (kind = 'worker_lost' AND NOT EXISTS (
               SELECT FROM workers WHERE host || ':' || pid = notifications.subject)) AS forgotten
    FROM notifications
    WHERE firing AND CASE kind WHEN 'run_dead' THEN false
                               WHEN 'runs_dead' THEN sent AND changed_at < now() - interval '1 hour'
                               ELSE NOT key = ANY (%(keys)s::text[]) END
), deleted AS (
    DELETE FROM notifications USING absent WHERE notifications.key = absent.key AND absent.forgotten
)
UPDATE notifications SET firing = false, since = now(), sent = false, changed_at = now()
FROM absent WHERE notifications.key = absent.key AND NOT absent.forgotten
