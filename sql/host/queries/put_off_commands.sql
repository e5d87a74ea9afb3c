-- Keep a command that the broker refused, and let those behind it pass.
UPDATE scheduler_outbox
SET attempts = attempts + 1, try_at = clock_timestamp() + make_interval(secs => %s), last_error = %s
WHERE id = %s
