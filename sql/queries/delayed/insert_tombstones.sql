-- Insert tombstones for messages that may still arrive. A message stored at the same time becomes its tombstone.
INSERT INTO delayed_messages (message_id, due_at, wake_at)
SELECT id, now() + %(holds)s, now() + %(holds)s
FROM unnest(%(ids)s::uuid[]) AS cancelled (id)
ORDER BY id
ON CONFLICT (message_id) WHERE message_id IS NOT NULL DO UPDATE
SET exchange = NULL, routing_key = NULL, properties = NULL, body = NULL, due_at = excluded.due_at,
    wake_at = excluded.wake_at, retries = 0, unroutable_at = NULL, problem = NULL
