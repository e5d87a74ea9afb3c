-- The jobs that are asked for and due next, overdue ones first, from where the last page ended.
SELECT id, wake_at
FROM jobs
WHERE status = 'pending' AND (wake_at, id) > (%(due_after)s::timestamptz, %(due_after_id)s::uuid) AND {wanted}
ORDER BY wake_at, id
LIMIT %(shown)s
