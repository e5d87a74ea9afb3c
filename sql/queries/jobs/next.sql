-- The jobs that are asked for and due next, overdue ones first.
SELECT id, wake_at
FROM jobs
WHERE status = 'pending' AND wake_at > '-infinity' AND {wanted}
ORDER BY wake_at
LIMIT %(shown)s
