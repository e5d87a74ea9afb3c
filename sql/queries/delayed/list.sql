-- List pending delayed messages without bodies, next due first.
SELECT {listed}
FROM delayed_messages
WHERE exchange IS NOT NULL
  AND wake_at > '-infinity'
  AND (%(routing_key)s::bytea IS NULL OR routing_key = %(routing_key)s)
  AND (%(since)s::timestamptz IS NULL OR due_at >= %(since)s)
  AND (%(after_at)s::timestamptz IS NULL OR (wake_at, id) > (%(after_at)s, %(after_id)s::bigint))
ORDER BY wake_at, id
LIMIT %(limit)s
