-- List replicas by role and age, with the seconds since start and last heartbeat.
SELECT role, host, pid, version, metrics_port,
       extract(epoch FROM now() - started_at)::float8 AS up_seconds,
       extract(epoch FROM now() - last_seen_at)::float8 AS silent_seconds,
       recent, id::text
FROM replicas
ORDER BY role, started_at
