-- Late jobs, the longest late first: due and not emitted, or refused by the broker. A job that waits for its own open run
-- or for its window is not late. Each half reads at most `most` rows of its index, so that the length of the backlog does
-- not matter.
SELECT id, due_at AS wake_at
FROM (SELECT id, least(next_run_at, trigger_at) AS due_at
      FROM (SELECT *
            FROM jobs
            WHERE status = 'pending' AND wake_at <= now() - %(grace)s * interval '1 second'
            ORDER BY wake_at
            LIMIT %(most)s) AS jobs
      WHERE {wanted}
      UNION
      SELECT id, least(next_run_at, trigger_at)
      FROM (SELECT *
            FROM jobs
            WHERE status = 'pending' AND retry_at IS NOT NULL
            ORDER BY least(next_run_at, trigger_at)
            LIMIT %(most)s) AS jobs
      WHERE held_by IS NULL AND retries > 0 AND {wanted}) AS late
WHERE (due_at, id) > (%(due_after)s::timestamptz, %(due_after_id)s::uuid)
ORDER BY due_at, id
LIMIT %(shown)s
