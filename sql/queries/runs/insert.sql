-- Insert runs that have only results, and runs that move back from the history.
INSERT INTO runs ({columns})
SELECT {columns}
FROM json_populate_recordset(NULL::runs, %(runs)s::json)
ORDER BY event_id
