-- Postpone commands that the broker rejects, so that later ones are sent.
UPDATE scheduler_outbox AS command
SET attempts = command.attempts + 1, try_at = clock_timestamp() + make_interval(secs => late.delay),
    last_error = late.problem
FROM unnest(%s::bigint[], %s::float8[], %s::text[]) AS late (id, delay, problem)
WHERE command.id = late.id
