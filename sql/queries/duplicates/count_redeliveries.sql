-- Increment and return the redelivery counts of these messages. In order, so that two consumers never deadlock.
INSERT INTO redeliveries AS known (message, count)
SELECT DISTINCT message, 1
FROM unnest(%(messages)s::uuid[]) AS redelivered (message)
ORDER BY message
ON CONFLICT (message) DO UPDATE SET count = known.count + 1, counted_at = now()
RETURNING message::text, count
