-- Record a worker's heartbeat and activity unless a newer one is stored, and delete workers silent for ten minutes.
WITH forgotten AS (
    DELETE FROM workers
    WHERE id IN (SELECT id FROM workers WHERE last_seen_at < now() - interval '10 minutes' AND id <> %(id)s
                 FOR UPDATE SKIP LOCKED)
)
INSERT INTO workers (id, host, pid, version, started_at, offers, in_flight, busy, succeeded, failed, snoozed, beat,
                     offer_tenants, handlers, platform, pools, capacity)
VALUES (%(id)s, %(host)s, %(pid)s, %(version)s, %(started_at)s, %(offers)s, %(in_flight)s, %(busy)s, %(succeeded)s,
        %(failed)s, %(snoozed)s, %(beat)s, %(offer_tenants)s, %(handlers)s,
        %(platform)s, %(pools)s::text[], %(capacity)s)
ON CONFLICT (id) DO UPDATE
SET last_seen_at = now(), offers = excluded.offers, in_flight = excluded.in_flight, busy = excluded.busy,
    succeeded = excluded.succeeded, failed = excluded.failed, snoozed = excluded.snoozed, beat = excluded.beat,
    offer_tenants = excluded.offer_tenants, handlers = coalesce(excluded.handlers, workers.handlers),
    platform = excluded.platform, pools = excluded.pools, capacity = excluded.capacity
WHERE workers.beat < excluded.beat
