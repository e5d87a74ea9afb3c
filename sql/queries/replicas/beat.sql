-- Record a replica's heartbeat and recent activity, delete replicas silent for ten minutes, and count the others.
WITH forgotten AS (
    DELETE FROM replicas WHERE last_seen_at < now() - interval '10 minutes' AND id <> %(id)s
), beat AS (
    INSERT INTO replicas (id, role, host, pid, version, metrics_port, recent, reads_markers)
    VALUES (%(id)s, %(role)s, %(host)s, %(pid)s, %(version)s, %(metrics_port)s, %(recent)s, true)
    ON CONFLICT (id) DO UPDATE SET last_seen_at = now(), recent = excluded.recent
)
SELECT role, count(*)
FROM replicas
WHERE id <> %(id)s AND last_seen_at > now() - make_interval(secs => %(stale_after)s)
GROUP BY role
UNION ALL
SELECT 'worker', count(*)
FROM workers
WHERE last_seen_at > now() - make_interval(secs => %(worker_stale_after)s)
HAVING count(*) > 0
