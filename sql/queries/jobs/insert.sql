-- Insert jobs that had other commands before their request, or changed again in the same batch.
INSERT INTO jobs ({columns}, finished_at)
SELECT {columns}, CASE WHEN status NOT IN ('pending', 'paused') THEN now() END
FROM json_populate_recordset(NULL::jobs, %(jobs)s::json)
ORDER BY id
