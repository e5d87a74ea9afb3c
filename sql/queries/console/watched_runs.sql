-- Show the runs that somebody looks at: of each the open one, or else the one that finished last.
SELECT DISTINCT ON (event_id) *
FROM (
    (SELECT {selected}, 0 AS rank FROM runs WHERE event_id = ANY(%(event_ids)s::uuid[]) AND due_at IS NOT NULL)
    UNION ALL
    (SELECT {selected_of_history}, 1 FROM run_history WHERE event_id = ANY(%(event_ids)s::uuid[]))
) AS found
ORDER BY event_id, rank, finished_at DESC NULLS LAST
