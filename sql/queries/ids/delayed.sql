-- List pending delayed messages whose message_ids are in a range.
SELECT message_id::text, exchange
FROM delayed_messages
WHERE message_id BETWEEN %(first)s AND %(last)s AND exchange IS NOT NULL
ORDER BY message_id
LIMIT %(limit)s
