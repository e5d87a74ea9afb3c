-- Delete runs from the history that move back to the open ones.
DELETE FROM run_history WHERE event_id = ANY (%(ids)s::uuid[])
