-- Return one pending delayed message by UUID or number, with the first bytes of its body.
SELECT {listed}, properties, substring(body FOR %(most)s)
FROM delayed_messages
WHERE exchange IS NOT NULL
  AND (message_id = %(message_id)s::uuid OR id = %(id)s::bigint)
