-- Return the run of an event: the open one, or else the newest finished one.
SELECT *
FROM (
    (SELECT {selected}, 0 AS rank FROM runs WHERE event_id = %(event_id)s::uuid AND due_at IS NOT NULL)
    UNION ALL
    (SELECT {selected_of_history}, 1 FROM run_history WHERE event_id = %(event_id)s::uuid)
) AS found
ORDER BY rank, finished_at DESC NULLS LAST
LIMIT 1
