-- Forget events that are too old to come again.
DELETE FROM scheduler_handled
WHERE done_at < now() - make_interval(secs => %s)
