-- Delete events that are too old to be redelivered.
DELETE FROM scheduler_handled
WHERE done_at < now() - make_interval(secs => %s)
