-- True if a held job need not wait any longer: enough of its runs have ended, or its overlap policy is no longer
-- `wait`.
(coalesce(run ->> 'overlap', '') <> 'wait'
 OR (SELECT count(*) FROM runs
     WHERE runs.job_id = jobs.id AND runs.status IN ('delivered', 'running', 'waiting'))
    < coalesce((run ->> 'max_running')::integer, 1))
