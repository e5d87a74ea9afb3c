-- Lock what is due of each class, oldest first, over which other replicas skip, and say how many seconds are left until
-- the next one that is not due yet. High goes before normal before low; $4 and $6 keep room for those that come after,
-- so that each class with something due gets at least a tenth, $8 and $9 are how many go out beside a few of high.
-- `now()`, not `clock_timestamp()`: only a stable bound can
-- use the index. The bounds $1, $2 and $3 keep the scans off entries already dealt with, which stay in the index while
-- another client's old snapshot still sees them. Class and time are compared and ordered as one, which only the index by
-- both can do: by time alone the scan for one class would walk over all that is due of the others. The last row is
-- empty but for what is known of the claim as a whole: in each row it would cost as much as the rest of it.
WITH high AS (
    SELECT {selected}
    FROM {table}
    WHERE {claimable}
      AND (coalesce(priority, 'normal'), wake_at) BETWEEN ('high', $1) AND ('high', now())
    ORDER BY coalesce(priority, 'normal'), wake_at
    LIMIT $4
    FOR UPDATE SKIP LOCKED
), normal AS (
    SELECT {selected}
    FROM {table}
    WHERE {claimable}
      AND (coalesce(priority, 'normal'), wake_at) BETWEEN ('normal', $2) AND ('normal', now())
    ORDER BY coalesce(priority, 'normal'), wake_at
    LIMIT (SELECT least($5 - count(*),
                        CASE WHEN count(*) BETWEEN 1 AND $4 - 1 THEN greatest($8, count(*) / 8 + 1) ELSE $5 END)
           FROM high)
    FOR UPDATE SKIP LOCKED
), low AS (
    SELECT {selected}
    FROM {table}
    WHERE {claimable}
      AND (coalesce(priority, 'normal'), wake_at) BETWEEN ('low', $3) AND ('low', now())
    ORDER BY coalesce(priority, 'normal'), wake_at
    LIMIT (SELECT least($7 - highs - normals,
                        CASE WHEN highs BETWEEN 1 AND $4 - 1 THEN greatest($9, (highs + normals) / 9 + 1) ELSE $6 END)
           FROM (SELECT (SELECT count(*) FROM high) AS highs, (SELECT count(*) FROM normal) AS normals) AS better)
    FOR UPDATE SKIP LOCKED
), due AS (
    SELECT * FROM high
    UNION ALL
    SELECT * FROM normal
    UNION ALL
    SELECT * FROM low
)
SELECT due.*, NULL::timestamptz AS claimed_at, NULL::float8 AS seconds_to_next, NULL::bigint AS highs,
       NULL::bigint AS normals
FROM due
UNION ALL
SELECT nothing.*,
       now() AS claimed_at,
       extract(epoch FROM least(
           (SELECT wake_at FROM {table}
            WHERE {claimable}
              AND (coalesce(priority, 'normal'), wake_at) > ('high', now())
              AND (coalesce(priority, 'normal'), wake_at) < ('high', 'infinity')
            ORDER BY coalesce(priority, 'normal'), wake_at LIMIT 1),
           (SELECT wake_at FROM {table}
            WHERE {claimable}
              AND (coalesce(priority, 'normal'), wake_at) > ('normal', now())
              AND (coalesce(priority, 'normal'), wake_at) < ('normal', 'infinity')
            ORDER BY coalesce(priority, 'normal'), wake_at LIMIT 1),
           (SELECT wake_at FROM {table}
            WHERE {claimable}
              AND (coalesce(priority, 'normal'), wake_at) > ('low', now())
              AND (coalesce(priority, 'normal'), wake_at) < ('low', 'infinity')
            ORDER BY coalesce(priority, 'normal'), wake_at LIMIT 1)
       ) - clock_timestamp())::float8 AS seconds_to_next,
       (SELECT count(*) FROM high) AS highs,
       (SELECT count(*) FROM normal) AS normals
FROM (VALUES (1)) AS always
LEFT JOIN (SELECT {selected} FROM {table} WHERE false) AS nothing ON true
