-- The statuses of the runs that a bulk action retried. A run that has ended since is in the history of that time.
SELECT status, count(*)
FROM (SELECT DISTINCT ON (event_id) status::text
      FROM (SELECT event_id, status, 0 AS rank FROM runs WHERE event_id = ANY(%(ids)s::uuid[])
            UNION ALL
            SELECT event_id, status, 1 FROM run_history
            WHERE event_id = ANY(%(ids)s::uuid[]) AND finished_at >= %(since)s) AS found
      ORDER BY event_id, rank) AS statuses
GROUP BY status
