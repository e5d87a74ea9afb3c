-- Cancel the pending messages with these ids; waits for messages that a producer has claimed.
DELETE FROM delayed_messages
WHERE message_id = ANY (%(ids)s::uuid[]) AND exchange IS NOT NULL
RETURNING message_id::text
