-- Delete the counts of handled messages.
DELETE FROM redeliveries
WHERE message IN (SELECT message FROM redeliveries WHERE message = ANY (%(messages)s::uuid[]) ORDER BY message FOR UPDATE)
