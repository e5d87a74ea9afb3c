-- Return the statuses of these runs; an open run takes precedence over a finished one.
SELECT DISTINCT ON (event_id) event_id::text, status::text
FROM (SELECT event_id, status, 0 AS rank FROM runs WHERE event_id = ANY(%(ids)s::uuid[])
      UNION ALL
      SELECT event_id, status, 1 FROM run_history WHERE event_id = ANY(%(ids)s::uuid[])) AS found
ORDER BY event_id, rank
