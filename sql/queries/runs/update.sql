-- Store what results, deadlines, cancels and retries made of runs that are locked. Only the columns that are written are
-- read: to make whole rows of them takes Postgres half as long again.
UPDATE {table}
SET ({columns}) = ROW ({saved})
FROM json_to_recordset(%(runs)s::json) AS saved ({typed})
WHERE {table}.event_id = saved.event_id
