-- Update locked runs after results, deadlines, cancels and retries. Only the written columns are read: building whole
-- rows takes Postgres half as long again.
UPDATE {table}
SET ({columns}) = ROW ({saved})
FROM json_to_recordset(%(runs)s::json) AS saved ({typed})
WHERE {table}.event_id = saved.event_id
