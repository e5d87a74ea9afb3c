-- Record runs of which nothing may be known; say which were recorded. One that a consumer records just now is waited for.
INSERT INTO runs ({columns})
SELECT {columns}
FROM json_populate_recordset(NULL::runs, %(runs)s::json)
ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id::text
