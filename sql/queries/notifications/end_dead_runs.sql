-- End the problem of jobs with a success since; forget those of jobs that are gone or were never sent.
WITH failing AS (
    SELECT key, sent, subject, since FROM notifications WHERE firing AND kind = 'run_dead'
    ORDER BY row_number() OVER (PARTITION BY tenant ORDER BY since DESC) LIMIT %(most)s
), recovered AS (
    SELECT key, sent, finished_at
    FROM failing, LATERAL (
        SELECT finished_at FROM run_history
        WHERE job_id = failing.subject::uuid AND status = 'succeeded' AND finished_at > failing.since
        ORDER BY due_at DESC LIMIT 1) AS success
), forgotten AS (
    DELETE FROM notifications USING recovered WHERE notifications.key = recovered.key AND NOT recovered.sent
)
UPDATE notifications SET firing = false, since = recovered.finished_at, sent = false, changed_at = now()
FROM recovered WHERE notifications.key = recovered.key AND recovered.sent
