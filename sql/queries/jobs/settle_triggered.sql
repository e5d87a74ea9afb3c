-- Strike the trigger that was emitted; the schedule itself stays as it is. The next one's due_at must differ
-- from this one's, so its own moment comes a microsecond later.
UPDATE jobs
SET triggers = triggers[2:], triggered_at = triggers[1], occurrence = occurrence + 1,
    trigger_at = CASE WHEN cardinality(triggers) > 1 THEN trigger_at + interval '1 microsecond' END,
    retries = 0, retry_at = NULL,
    status = CASE WHEN next_run_at IS NULL AND cardinality(triggers) <= 1
                  THEN 'done'::job_status ELSE status END,
    finished_at = CASE WHEN next_run_at IS NULL AND cardinality(triggers) <= 1 THEN now() END,
    last_due_at = least(triggers[1], trigger_at),
    last_emitted_at = %(emitted_at)s, last_confirmed_at = %(confirmed_at)s
WHERE id = ANY (%(ids)s::uuid[])
