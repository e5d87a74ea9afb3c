-- The jobs that are due next, overdue ones first, from where the last page ended, as people see them.
SELECT {selected}, {beside}
FROM ({next}) AS page
JOIN jobs USING (id)
ORDER BY page.wake_at, id
