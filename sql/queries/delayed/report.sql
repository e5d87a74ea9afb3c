-- Show one delayed message that waits, by its UUID or by its number, with as much of its body as is asked for.
SELECT {listed}, properties, substring(body FOR %(most)s)
FROM delayed_messages
WHERE exchange IS NOT NULL
  AND (message_id = %(message_id)s::uuid OR id = %(id)s::bigint)
