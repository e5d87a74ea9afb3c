-- Forget runs whose event did not go out, or of which nothing but results was ever known.
DELETE FROM runs WHERE event_id = ANY (%(ids)s::uuid[])
