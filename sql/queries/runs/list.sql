-- List runs, open and finished together, those that were due last first. Each side is cut before the two are put
-- together and before any JSON is read. A run ends after it was due, so that old days of the history are left out; a
-- day more, for a trigger is due when its host's clock says so.
SELECT *
FROM (
    (SELECT {selected}
     FROM (SELECT *
           FROM runs
           WHERE due_at IS NOT NULL
             AND (%(status)s IS NULL OR status = %(status)s::run_status)
             AND (%(job_id)s IS NULL OR job_id = %(job_id)s::uuid)
             AND (%(job_type)s IS NULL OR job_type = %(job_type)s)
             AND (%(since)s IS NULL OR due_at >= %(since)s::timestamptz)
             AND (%(until)s IS NULL OR due_at < %(until)s::timestamptz)
           ORDER BY due_at DESC, event_id
           LIMIT %(limit)s) AS opened)
    UNION ALL
    (SELECT {selected_of_history}
     FROM (SELECT *
           FROM run_history
           WHERE (%(status)s IS NULL OR status = %(status)s::run_status)
             AND (%(job_id)s IS NULL OR job_id = %(job_id)s::uuid)
             AND (%(job_type)s IS NULL OR job_type = %(job_type)s)
             AND (%(since)s IS NULL OR due_at >= %(since)s::timestamptz
                                       AND finished_at >= %(since)s::timestamptz - interval '1 day')
             AND (%(until)s IS NULL OR due_at < %(until)s::timestamptz)
           ORDER BY due_at DESC, event_id
           LIMIT %(limit)s) AS finished)
) AS found
ORDER BY due_at DESC, event_id
LIMIT %(limit)s
