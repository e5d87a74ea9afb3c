-- Lock the oldest due jobs, over which other replicas skip, and say how many seconds are left until the next
-- one that is not due yet. `now()`, not `clock_timestamp()`: only a stable bound can use the index. The bound $1
-- keeps the scan off entries already dealt with, which stay in the index while another client's old snapshot
-- still sees them. There is always a row: an empty one when nothing is due.
WITH due AS (
    SELECT {selected}
    FROM jobs
    WHERE status = 'pending'
      AND wake_at <= now()
      AND wake_at >= $1
    ORDER BY wake_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
SELECT due.*,
       now() AS claimed_at,
       (SELECT extract(epoch FROM wake_at - clock_timestamp())::float8
        FROM jobs
        WHERE status = 'pending' AND wake_at > now() AND wake_at < 'infinity'
        ORDER BY wake_at
        LIMIT 1) AS seconds_to_next
FROM (VALUES (1)) AS always
LEFT JOIN due ON true
