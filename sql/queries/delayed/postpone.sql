-- Postpone messages that the broker rejected, and store the time from which they have been unroutable.
UPDATE delayed_messages
SET retries = retries + 1, wake_at = clock_timestamp() + make_interval(secs => delay), problem = why,
    unroutable_at = CASE WHEN unroutable THEN coalesce(unroutable_at, clock_timestamp()) END
FROM unnest(%(ids)s::bigint[], %(delays)s::float8[], %(problems)s::text[], %(unroutable)s::boolean[])
     AS postponed (message, delay, why, unroutable)
WHERE id = message
