-- List workers by age, with the seconds since start and last heartbeat.
SELECT id::text, host, pid, version,
       extract(epoch FROM now() - started_at)::float8 AS up_seconds,
       extract(epoch FROM now() - last_seen_at)::float8 AS silent_seconds,
       offers, in_flight, busy, succeeded, failed, snoozed, offer_tenants, platform, pools, capacity
FROM workers
ORDER BY started_at, id
