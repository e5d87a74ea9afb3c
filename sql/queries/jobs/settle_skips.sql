-- Store the instant up to which skipped occurrences are reported. A job is done if its schedule has none left.
UPDATE jobs
SET reported_until = reported, skip_at = next_skip,
    status = CASE WHEN next_skip IS NULL AND next_run_at IS NULL AND cardinality(triggers) = 0 THEN 'done' ELSE status END,
    finished_at = CASE WHEN next_skip IS NULL AND next_run_at IS NULL AND cardinality(triggers) = 0 THEN now() END
FROM unnest(%(ids)s::uuid[], %(reported)s::timestamptz[], %(skip_at)s::timestamptz[])
     AS settled (job_id, reported, next_skip)
WHERE id = job_id
