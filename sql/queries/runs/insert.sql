-- Record runs that are known by their results only, and those that move back from the history.
INSERT INTO runs ({columns})
SELECT {columns}
FROM json_populate_recordset(NULL::runs, %(runs)s::json)
ORDER BY event_id
