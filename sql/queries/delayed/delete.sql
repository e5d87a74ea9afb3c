-- Delete messages that the broker has confirmed, and expired tombstones.
DELETE FROM delayed_messages
WHERE id = ANY (%(ids)s::bigint[])
