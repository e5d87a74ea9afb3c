-- The jobs that are due next, overdue ones first, as people see them.
SELECT {selected}, {beside}
FROM (
    SELECT id, wake_at AS due_next
    FROM jobs
    WHERE status = 'pending' AND {wanted} AND wake_at > '-infinity'
    ORDER BY wake_at
    LIMIT %(limit)s
) AS page
JOIN jobs USING (id)
ORDER BY due_next, id
