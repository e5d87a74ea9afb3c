-- Forget problems that are over, and those of jobs that are gone.
DELETE FROM notifications
WHERE (NOT firing AND sent AND kind <> 'place' AND changed_at < now() - interval '1 day')
   OR (kind = 'run_dead' AND sent AND changed_at < now() - interval '1 day'
       AND NOT EXISTS (SELECT FROM jobs WHERE id = notifications.subject::uuid))
