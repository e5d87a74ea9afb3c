-- List the replicas by role and age, with the seconds since each started and was last heard of.
SELECT role, host, pid, version, metrics_port,
       extract(epoch FROM now() - started_at)::float8 AS up_seconds,
       extract(epoch FROM now() - last_seen_at)::float8 AS silent_seconds,
       recent
FROM replicas
ORDER BY role, started_at
