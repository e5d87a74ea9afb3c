-- Update locked jobs after a batch of commands.
UPDATE jobs
SET ({columns}) = ROW ({saved}), updated_at = now(), updated_by = saved.updated_by,
    finished_at = CASE WHEN saved.status NOT IN ('pending', 'paused') THEN now() END
FROM json_populate_recordset(NULL::jobs, %(jobs)s::json) AS saved
WHERE jobs.id = saved.id
