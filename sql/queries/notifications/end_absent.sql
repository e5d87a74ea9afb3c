-- End the problems that exist no longer. One that was never sent is forgotten, as is a worker that stays away.
WITH absent AS (
    SELECT key, NOT sent OR (kind = 'worker_lost' AND NOT EXISTS (
               SELECT FROM workers WHERE host || ':' || pid = notifications.subject)) AS forgotten
    FROM notifications
    WHERE firing AND kind <> 'run_dead' AND NOT key = ANY (%(keys)s::text[])
), deleted AS (
    DELETE FROM notifications USING absent WHERE notifications.key = absent.key AND absent.forgotten
)
UPDATE notifications SET firing = false, since = now(), sent = false, changed_at = now()
FROM absent WHERE notifications.key = absent.key AND NOT absent.forgotten
