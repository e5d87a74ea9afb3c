-- Ids of one page of runs, latest due first, for bulk commands; see runs/page.sql.
SELECT event_id, due_at, tenant, status::text
FROM (
    (SELECT event_id, due_at, tenant, status FROM runs
     WHERE due_at IS NOT NULL AND {wanted} ORDER BY due_at DESC, event_id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT event_id, due_at, tenant, status FROM run_history
     WHERE {wanted} AND (%(since)s IS NULL OR finished_at >= %(since)s::timestamptz - interval '1 day')
     ORDER BY due_at DESC, event_id DESC LIMIT %(limit)s)
) AS found
ORDER BY due_at DESC, event_id DESC
LIMIT %(limit)s
