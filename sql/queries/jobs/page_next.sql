-- One page of jobs due next, overdue ones first, with their list columns.
SELECT {selected}, {beside}
FROM ({next}) AS page
JOIN jobs USING (id)
ORDER BY page.wake_at, id
