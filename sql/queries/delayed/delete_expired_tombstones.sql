-- Delete expired tombstones before a producer does.
DELETE FROM delayed_messages
WHERE message_id = ANY (%(ids)s::uuid[]) AND exchange IS NULL AND due_at <= now()
