-- Delete the emitted or skipped trigger; the schedule does not change. The next trigger needs a different due_at, so it
-- is at least a microsecond later. A job without a schedule stays pending.
UPDATE jobs
SET triggers = triggers[2:], triggered_at = greatest(triggered_at, triggers[1]), occurrence = occurrence + %(emitted)s,
    trigger_at = CASE WHEN cardinality(triggers) > 1 THEN trigger_at + interval '1 microsecond' END,
    retries = 0, retry_at = NULL, held_by = NULL,
    status = CASE WHEN next_run_at IS NULL AND skip_at IS NULL AND cardinality(triggers) <= 1
                       AND start_source IS DISTINCT FROM 'manual'
                  THEN 'done'::job_status ELSE status END,
    finished_at = CASE WHEN next_run_at IS NULL AND skip_at IS NULL AND cardinality(triggers) <= 1
                            AND start_source IS DISTINCT FROM 'manual' THEN now() END,
    last_due_at = CASE %(emitted)s WHEN 0 THEN last_due_at ELSE least(triggers[1], trigger_at) END,
    last_emitted_at = CASE %(emitted)s WHEN 0 THEN last_emitted_at ELSE %(emitted_at)s END,
    last_confirmed_at = CASE %(emitted)s WHEN 0 THEN last_confirmed_at ELSE %(confirmed_at)s END
WHERE id = ANY (%(ids)s::uuid[])
