-- Return the runs on live pages in one statement: complete runs for run pages; without event, output and attempts the
-- rows of open lists, the newest runs of viewed jobs, the newest runs and the newest dead runs. An open run precedes a
-- finished one with the same event.
SELECT *
FROM (
    (SELECT {selected}, 'whole' AS kind, 0 AS rank
     FROM runs
     WHERE event_id = ANY(%(whole)s::uuid[]) AND due_at IS NOT NULL)
    UNION ALL
    (SELECT {selected_of_history}, 'whole', 1
     FROM run_history
     WHERE event_id = ANY(%(whole)s::uuid[]))
    UNION ALL
    (SELECT {brief}, 'row', 0
     FROM runs
     WHERE event_id = ANY(%(rows)s::uuid[]) AND due_at IS NOT NULL)
    UNION ALL
    (SELECT {brief}, 'row', 1
     FROM run_history
     WHERE event_id = ANY(%(rows)s::uuid[]))
    UNION ALL
    (SELECT {brief}, 'of job', 0
     FROM unnest(%(jobs)s::uuid[]) AS watched (job)
     CROSS JOIN LATERAL (SELECT * FROM runs
                         WHERE job_id = watched.job AND due_at IS NOT NULL
                         ORDER BY due_at DESC LIMIT %(most_of_job)s) AS newest)
    UNION ALL
    (SELECT {brief}, 'of job', 1
     FROM unnest(%(jobs)s::uuid[]) AS watched (job)
     CROSS JOIN LATERAL (SELECT * FROM run_history
                         WHERE job_id = watched.job
                         ORDER BY due_at DESC LIMIT %(most_of_job)s) AS newest)
    UNION ALL
    (SELECT {brief}, 'new', 0
     FROM (SELECT * FROM runs WHERE due_at IS NOT NULL ORDER BY due_at DESC LIMIT %(newest)s) AS newest)
    UNION ALL
    (SELECT {brief}, 'new', 1
     FROM (SELECT * FROM run_history ORDER BY due_at DESC, event_id DESC LIMIT %(newest)s) AS newest)
    UNION ALL
    (SELECT {brief}, 'new', 1
     FROM (SELECT * FROM run_history WHERE status = 'dead' ORDER BY finished_at DESC LIMIT %(newest)s) AS newest)
) AS found
ORDER BY rank, finished_at DESC NULLS LAST
