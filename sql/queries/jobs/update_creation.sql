-- Record when and by whom jobs are requested whose rows other commands have created. Lists of recurring jobs copy the time
-- when the request is stored, so this comes first.
UPDATE jobs
SET created_at = now(), created_by = saved.created_by, created_via = saved.created_via
FROM json_populate_recordset(NULL::jobs, %(jobs)s::json) AS saved
WHERE jobs.id = saved.id
