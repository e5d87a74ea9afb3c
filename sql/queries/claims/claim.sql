-- Lock what is due of each class, oldest first, over which other replicas skip, and say how many seconds are left until
-- the next one that is not due yet. High goes before normal before low; $4 and $6 keep room for those that come after,
-- so that each class with something due gets at least a tenth; $8 and $9 are how many go out beside a few of high, and
-- $7 how many of low where nothing else is due.
-- `now()`, not `clock_timestamp()`: only a stable bound can use the index. The bounds $1, $2 and $3 keep the scans off
-- entries already dealt with, which stay in the index while another client's old snapshot still sees them, and off what
-- is due of the other classes: the index is by time, and tells the class without a look at the row.
-- Most of what is due is normal, and takes no detour: what goes through a CTE costs half as much again. So what low may
-- have is reckoned without a count of it. The last row is empty but for what is known of the claim as a whole: in each
-- row it would cost as much as the rest of it.
WITH high AS (
    SELECT {selected}
    FROM {table}
    WHERE {claimable} AND coalesce(priority, 'normal') = 'high' AND wake_at BETWEEN $1 AND now()
    ORDER BY wake_at
    LIMIT $4
    FOR UPDATE SKIP LOCKED
), better AS (
    SELECT count(*) AS highs,
           count(*) BETWEEN 1 AND $4 - 1 AS urgent,
           EXISTS (SELECT FROM {table}
                   WHERE {claimable} AND coalesce(priority, 'normal') = 'normal' AND wake_at BETWEEN $2 AND now()
           ) AS normal_waits
    FROM high
), low AS (
    SELECT {selected}
    FROM {table}
    WHERE {claimable} AND coalesce(priority, 'normal') = 'low' AND wake_at BETWEEN $3 AND now()
    ORDER BY wake_at
    LIMIT (SELECT CASE WHEN urgent THEN least($6, greatest($9, (highs + greatest($8, highs / 8 + 1)) / 9 + 1))
                       WHEN highs > 0 OR normal_waits THEN $6
                       ELSE $7 END
           FROM better)
    FOR UPDATE SKIP LOCKED
)
SELECT high.*, NULL::timestamptz AS claimed_at, NULL::float8 AS seconds_to_next, NULL::bigint AS highs,
       NULL::bigint AS lows, NULL::boolean AS normal_waits
FROM high
UNION ALL
SELECT normal.*, NULL, NULL, NULL, NULL, NULL
FROM (
    SELECT {selected}
    FROM {table}
    WHERE {claimable} AND coalesce(priority, 'normal') = 'normal' AND wake_at BETWEEN $2 AND now()
    ORDER BY wake_at
    LIMIT (SELECT CASE WHEN urgent THEN least($5 - highs, greatest($8, highs / 8 + 1)) ELSE $5 - highs END FROM better)
    FOR UPDATE SKIP LOCKED
) AS normal
UNION ALL
SELECT low.*, NULL, NULL, NULL, NULL, NULL
FROM low
UNION ALL
SELECT nothing.*,
       now(),
       extract(epoch FROM (SELECT wake_at FROM {table}
                           WHERE {claimable} AND wake_at > now() AND wake_at < 'infinity'
                           ORDER BY wake_at LIMIT 1) - clock_timestamp())::float8,
       highs,
       (SELECT count(*) FROM low),
       normal_waits
FROM better
LEFT JOIN (SELECT {selected} FROM {table} WHERE false) AS nothing ON true
