-- Delete the messages that the broker has confirmed, and cancels whose hour is over.
DELETE FROM delayed_messages
WHERE id = ANY (%(ids)s::bigint[])
