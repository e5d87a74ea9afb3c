-- The jobs that are due next, overdue ones first, as people see them.
SELECT {selected}, {beside}
FROM ({next}) AS page
JOIN jobs USING (id)
ORDER BY page.wake_at, id
