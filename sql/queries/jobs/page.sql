-- One page of jobs, newest first.
SELECT {selected}, {beside}
FROM (
    SELECT id
    FROM ({newest}) AS newest
    ORDER BY created_at DESC, id DESC
    LIMIT %(limit)s
) AS page
JOIN jobs USING (id)
ORDER BY created_at DESC, id DESC
