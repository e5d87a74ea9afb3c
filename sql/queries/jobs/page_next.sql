-- The jobs that are due next, overdue ones first, from where the last page ended, as people see them.
SELECT {selected}, {beside}
FROM (
    SELECT id, wake_at AS due_next
    FROM jobs
    WHERE status = 'pending' AND {wanted} AND (wake_at, id) > (%(due_after)s::timestamptz, %(due_after_id)s::uuid)
    ORDER BY wake_at, id
    LIMIT %(limit)s
) AS page
JOIN jobs USING (id)
ORDER BY due_next, id
