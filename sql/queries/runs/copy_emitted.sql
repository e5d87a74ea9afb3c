-- Record occurrences of untracked jobs in the history (SCHEDULER_HISTORY=all).
COPY run_history (event_id, status, attempt, job_id, job_type, due_at, origin, emitted_at, finished_at,
                  tenant, emitted_by) FROM STDIN
