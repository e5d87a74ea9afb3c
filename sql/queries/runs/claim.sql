-- Lock the runs that fall due: to try again, to give up waiting, or to tell how they ended. As the claim of jobs.
WITH due AS (
    SELECT {selected}
    FROM runs
    WHERE wake_at <= now()
      AND wake_at >= $1
    ORDER BY wake_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
SELECT due.*,
       now() AS claimed_at,
       (SELECT extract(epoch FROM wake_at - clock_timestamp())::float8
        FROM runs
        WHERE wake_at > now() AND wake_at < 'infinity'
        ORDER BY wake_at
        LIMIT 1) AS seconds_to_next
FROM (VALUES (1)) AS always
LEFT JOIN due ON true
