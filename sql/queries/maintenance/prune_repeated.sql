-- Delete some messages that were stored or counted longer ago than `age`.
WITH triggers AS (
    DELETE FROM trigger_messages
    WHERE (job_id, message) IN (
        SELECT job_id, message
        FROM trigger_messages
        WHERE stored_at < now() - %(age)s
        ORDER BY stored_at
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
), redelivered AS (
    DELETE FROM redeliveries
    WHERE message IN (
        SELECT message
        FROM redeliveries
        WHERE counted_at < now() - %(age)s
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
)
SELECT greatest((SELECT count(*) FROM triggers), (SELECT count(*) FROM redelivered))
