-- Take runs out of the history that move back among the open ones.
DELETE FROM run_history WHERE event_id = ANY (%(ids)s::uuid[])
