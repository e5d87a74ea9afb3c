-- Advance jobs that skipped or folded occurrences, or finish them if there is no next occurrence. The occurrence into
-- which others were folded is later than the first of them.
UPDATE jobs
SET next_run_at = following, retries = 0, retry_at = NULL, held_by = NULL, occurrence = occurrence + emitted,
    status = CASE WHEN following IS NULL THEN 'done' ELSE status END,
    finished_at = CASE WHEN following IS NULL THEN now() END,
    last_due_at = CASE emitted WHEN 0 THEN last_due_at ELSE coalesce(folded_into, next_run_at) END,
    last_emitted_at = CASE emitted WHEN 0 THEN last_emitted_at ELSE %(emitted_at)s END,
    last_confirmed_at = CASE emitted WHEN 0 THEN last_confirmed_at ELSE %(confirmed_at)s END
FROM unnest(%(ids)s::uuid[], %(following)s::timestamptz[], %(emitted)s::integer[], %(folded_into)s::timestamptz[])
     AS settled (job_id, following, emitted, folded_into)
WHERE id = job_id
