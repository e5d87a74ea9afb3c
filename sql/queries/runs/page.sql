-- One page of runs, open and finished together, those that were due last first, from where the last page ended. Each side
-- is cut before the two are put together and before any JSON is read. A run ends after it was due, so that old days of
-- the history are left out; a day more, for a trigger is due when its host's clock says so.
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
