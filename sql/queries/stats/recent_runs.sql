-- Count the newest runs of the last day by whether they succeeded, and average the duration of the last attempts of a
-- few hundred (as in Run.duration).
SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded, count(*) AS ended, CASE WHEN count(*) > 0 THEN (
    SELECT avg(greatest(0, extract(epoch FROM duration)) * 1000) FILTER (WHERE duration IS NOT NULL)::float8
    FROM (SELECT CASE WHEN ended ->> 'started_at' IS NOT NULL
                      THEN (ended ->> 'finished_at')::timestamptz - (ended ->> 'started_at')::timestamptz
                      WHEN ended ->> 'outcome' IN ('succeeded', 'failed') AND (ended ->> 'attempt')::integer = attempt
                      THEN finished_at - emitted_at END AS duration
          FROM (SELECT CASE status
                       WHEN 'succeeded' THEN (
                           SELECT made FROM json_array_elements(attempts) WITH ORDINALITY AS each (made, place)
                           WHERE made ->> 'outcome' = 'succeeded' ORDER BY place LIMIT 1)
                       ELSE attempts -> -1 END AS ended, attempt, emitted_at, finished_at
                FROM run_history
                WHERE finished_at > now() - interval '1 day' AND status IN ('succeeded', 'dead')
                  AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
                ORDER BY due_at DESC, event_id DESC
                LIMIT %(few)s) AS newest) AS durations
    ) END AS mean_ms
FROM (SELECT status
      FROM run_history
      WHERE finished_at > now() - interval '1 day' AND status IN ('succeeded', 'dead')
        AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
      ORDER BY due_at DESC, event_id DESC
      LIMIT %(most)s) AS recent
