-- Forget problems that are over, those of jobs that are gone, and the oldest of a tenant with very many dead runs.
DELETE FROM notifications
WHERE (NOT firing AND sent AND kind <> 'place' AND changed_at < now() - interval '1 day')
   OR (kind = 'run_dead' AND sent AND changed_at < now() - interval '1 day'
       AND NOT EXISTS (SELECT FROM jobs WHERE id = notifications.subject::uuid))
   OR key IN (SELECT key FROM (SELECT key, row_number() OVER (PARTITION BY tenant ORDER BY changed_at DESC) AS place
                               FROM notifications WHERE kind = 'run_dead' AND sent) AS newest
              WHERE place > %(most)s)
