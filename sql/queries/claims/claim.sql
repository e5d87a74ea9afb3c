-- Lock the oldest due rows of each class, skipping rows that other replicas have locked, and return the seconds until
-- the next row is due. High goes before normal before low. $4 and $6 reserve room for the lower classes, so that each
-- class with due rows gets at least a tenth. $8 and $9 limit normal and low rows next to a few high ones; $7 limits low
-- rows if nothing else is due. `now()`, not `clock_timestamp()`: only a stable bound can use the index. The bounds $1,
-- $2 and $3 keep the scans off settled entries, which stay in the index while another client's old snapshot still sees
-- them, and off due rows of the other classes: the index is by time and contains the class. Most due rows are normal,
-- and a CTE would make them half as expensive again, so the share of low is computed without counting normal. The last
-- row has only the values of the whole claim: in every row they would cost as much as the rest of the row.
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
