-- Take back one message that waits, by its number; one that a producer has claimed is waited for.
DELETE FROM delayed_messages
WHERE id = %(id)s AND exchange IS NOT NULL
RETURNING id
