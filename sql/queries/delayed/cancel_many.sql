-- Take back the messages with these ids that wait; one that a producer has claimed is waited for.
DELETE FROM delayed_messages
WHERE message_id = ANY (%(ids)s::uuid[]) AND exchange IS NOT NULL
RETURNING message_id::text
