-- Status of the newest run of each of these tracked jobs, and the work that no worker has started for a while. A run ends after its due time, so older partitions of the
-- history are skipped. A separate statement, because planning it takes longer than reading a page of jobs, and most
-- jobs are not tracked.
SELECT id::text, coalesce(
    (SELECT status::text FROM runs WHERE job_id = tracked.id AND due_at IS NOT NULL ORDER BY due_at DESC LIMIT 1),
    (SELECT status::text FROM run_history
     WHERE job_id = tracked.id AND finished_at >= tracked.last_due_at - interval '1 day'
     ORDER BY due_at DESC LIMIT 1)
), (SELECT work FROM runs
    WHERE job_id = tracked.id AND status = 'delivered' AND work IS NOT NULL
      AND emitted_at < now() - %(unstarted)s * interval '1 second'
    LIMIT 1)
FROM unnest(%(ids)s::uuid[], %(last_due_ats)s::timestamptz[]) AS tracked (id, last_due_at)
