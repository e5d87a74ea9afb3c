-- Forget cancels whose hour is over, before a producer comes by.
DELETE FROM delayed_messages
WHERE message_id = ANY (%(ids)s::uuid[]) AND exchange IS NULL AND due_at <= now()
