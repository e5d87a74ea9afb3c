-- List runs whose event ids are in a range; a run that was retried is in both tables.
SELECT DISTINCT ON (event_id) event_id::text, status::text, job_type, job_id::text
FROM (
    SELECT event_id, status, job_type, job_id, 0 AS rank
    FROM runs WHERE event_id BETWEEN %(first)s AND %(last)s AND due_at IS NOT NULL
    UNION ALL
    SELECT event_id, status, job_type, job_id, 1
    FROM run_history WHERE event_id BETWEEN %(first)s AND %(last)s
) AS matches
ORDER BY event_id, rank
LIMIT %(limit)s
