-- One page of open and finished runs, latest due first, after the last page. Each side is limited before the union and
-- before any JSON is read. A run ends after its due time, so old partitions of the history are skipped; one more day
-- allows for a host's clock that sets the due time of a trigger.
SELECT *
FROM (
    (SELECT {selected}
     FROM (SELECT * FROM runs
           WHERE due_at IS NOT NULL AND {wanted}
           ORDER BY due_at DESC, event_id DESC
           LIMIT %(limit)s) AS opened)
    UNION ALL
    (SELECT {selected_of_history}
     FROM (SELECT * FROM run_history
           WHERE {wanted}
             AND (%(since)s IS NULL OR finished_at >= %(since)s::timestamptz - interval '1 day')
           ORDER BY due_at DESC, event_id DESC
           LIMIT %(limit)s) AS finished)
) AS found
ORDER BY due_at DESC, event_id DESC
LIMIT %(limit)s
