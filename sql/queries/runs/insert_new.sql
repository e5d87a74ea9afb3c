-- Insert runs that may exist, and return the inserted ones; waits for runs that a consumer is inserting.
INSERT INTO runs ({columns})
SELECT {columns}
FROM json_populate_recordset(NULL::runs, %(runs)s::json)
ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id::text
