-- Note that an event takes effect. No row comes back when it did so before; while another transaction is busy
-- with the same event this waits for its end.
INSERT INTO scheduler_handled (event_id, scope)
VALUES (%s::uuid, %s)
ON CONFLICT DO NOTHING
RETURNING event_id
