-- Return whether any of these events has a finished run: it may have moved between the two lookups.
SELECT EXISTS (SELECT FROM run_history WHERE event_id = ANY (%(ids)s::uuid[]))
