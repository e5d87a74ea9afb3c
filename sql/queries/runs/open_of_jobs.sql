-- Return an open run of each of these jobs that has at least its limit of open runs.
SELECT limited.job_id::text, limiting.event_id::text
FROM unnest(%(ids)s::uuid[], %(limits)s::integer[]) AS limited (job_id, most)
CROSS JOIN LATERAL (
    SELECT event_id
    FROM runs
    WHERE runs.job_id = limited.job_id AND status IN ('delivered', 'running', 'waiting')
    OFFSET limited.most - 1
    LIMIT 1
) AS limiting
