-- Return which of these ids are pending, cancelled, or cancelled with an expired tombstone.
SELECT message_id::text, exchange IS NULL AS cancelled, exchange IS NULL AND due_at <= now() AS over
FROM delayed_messages
WHERE message_id = ANY (%(ids)s::uuid[])
