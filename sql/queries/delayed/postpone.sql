-- Keep the messages that the broker did not take, to be tried again later; since when they find no queue is kept too.
UPDATE delayed_messages
SET retries = retries + 1, wake_at = clock_timestamp() + make_interval(secs => delay), problem = why,
    unroutable_at = CASE WHEN unroutable THEN coalesce(unroutable_at, clock_timestamp()) END
FROM unnest(%(ids)s::bigint[], %(delays)s::float8[], %(problems)s::text[], %(unroutable)s::boolean[])
     AS postponed (message, delay, why, unroutable)
WHERE id = message
