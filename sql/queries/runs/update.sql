-- Store what results, deadlines, cancels and retries made of runs that are locked.
UPDATE runs
SET ({columns}) = ROW ({saved})
FROM json_populate_recordset(NULL::runs, %(runs)s::json) AS saved
WHERE runs.event_id = saved.event_id
