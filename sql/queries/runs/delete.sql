-- Delete runs whose event was not emitted, or that have only results.
DELETE FROM runs WHERE event_id = ANY (%(ids)s::uuid[])
