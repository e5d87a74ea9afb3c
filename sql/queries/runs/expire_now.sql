-- Let the attempts expire whose event has been returned for their whole `start_timeout`.
UPDATE runs SET deadline = now(), wake_at = now()
WHERE event_id = ANY (%(ids)s::uuid[]) AND status = 'delivered'
