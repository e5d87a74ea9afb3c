-- Release held jobs that meet a condition, and return or announce from when they are due. This never waits: it skips jobs that another
-- transaction has locked. That is safe because every transaction that leaves a job held checks the hold after its own
-- commit (jobs/hold_expired.sql): whichever of the two commits last sees the other. A job that is released too early is
-- held again by its next claim.
WITH held AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE held_by IS NOT NULL AND id = ANY (%(ids)s::uuid[]) AND {condition}
    FOR UPDATE SKIP LOCKED
), released AS (
    UPDATE jobs SET retry_at = NULL, held_by = NULL
    FROM held
    WHERE jobs.id = held.id
    RETURNING jobs.wake_at
)
SELECT {due_from}
FROM released
HAVING min(wake_at) IS NOT NULL
