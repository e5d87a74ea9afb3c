-- Matching jobs due next. If few jobs match, sort all of them; otherwise walk the due index, which finds a page
-- quickly.
WITH few AS MATERIALIZED (SELECT id FROM ({newest}) AS newest LIMIT %(limit)s),
many AS MATERIALIZED (SELECT count(*) >= %(limit)s AS found FROM few)
(SELECT few.id, wake_at
 FROM few
 CROSS JOIN LATERAL (SELECT status, wake_at FROM jobs WHERE jobs.id = few.id OFFSET 0) AS known
 WHERE NOT (SELECT found FROM many) AND status = 'pending'
   AND (wake_at, few.id) > (%(due_after)s::timestamptz, %(due_after_id)s::uuid)
   AND (%(due_until)s IS NULL OR wake_at < %(due_until)s::timestamptz)
 ORDER BY wake_at, few.id
 LIMIT %(shown)s)
UNION ALL
SELECT walked.* FROM ({next}) AS walked WHERE (SELECT found FROM many)
