-- Of these ids, say which wait, which are cancelled, and which were cancelled so long ago that it counts no more.
SELECT message_id::text, exchange IS NULL AS cancelled, exchange IS NULL AND due_at <= now() AS over
FROM delayed_messages
WHERE message_id = ANY (%(ids)s::uuid[])
