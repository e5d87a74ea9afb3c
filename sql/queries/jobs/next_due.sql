-- Matching jobs due next, overdue ones first, after the last page.
SELECT id, wake_at
FROM jobs
WHERE status = 'pending' AND (wake_at, id) > (%(due_after)s::timestamptz, %(due_after_id)s::uuid)
  AND (%(due_until)s IS NULL OR wake_at < %(due_until)s::timestamptz) AND {wanted}
ORDER BY wake_at, id
LIMIT %(shown)s
