-- Lock jobs with skipped occurrences to report, and return the time and the seconds until the next one.
WITH due AS (
    SELECT {selected}
    FROM jobs
    WHERE status = 'pending' AND skip_at <= now()
    ORDER BY skip_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
SELECT due.*, now(),
       (SELECT extract(epoch FROM skip_at - clock_timestamp())::float8
        FROM jobs
        WHERE status = 'pending' AND skip_at > now()
        ORDER BY skip_at
        LIMIT 1)
FROM (VALUES (1)) AS always
LEFT JOIN due ON true
