-- Record that an event is handled. Returns no row if it already was. Waits while another transaction handles the
-- same event.
INSERT INTO scheduler_handled (event_id, scope)
VALUES (%s::uuid, %s)
ON CONFLICT DO NOTHING
RETURNING event_id
