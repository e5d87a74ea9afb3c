-- Lock the oldest pending commands; other relays skip them.
SELECT id, kind, body::text, body ->> 'issued_at' IS NOT NULL AS dated,
       to_char(issued_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS issued_at,
       correlation_id, headers::text, attempts
FROM scheduler_outbox
WHERE try_at <= now()
ORDER BY id
LIMIT %s
FOR UPDATE SKIP LOCKED
