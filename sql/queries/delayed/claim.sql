-- Lock due delayed messages, as the claim of jobs does, and return the first ones up to a number of bytes, at least
-- one; `locked` counts all. A window over rows in index order needs no sort, and large bodies are not read until they
-- are returned.
WITH due AS (
    SELECT {selected}
    FROM delayed_messages
    WHERE wake_at <= now()
      AND wake_at >= $1
    ORDER BY wake_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), sized AS (
    SELECT due.*, sum(coalesce(octet_length(body), 0) + coalesce(octet_length(properties), 0))
                  OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM due
)
SELECT {returned},
       now() AS claimed_at,
       (SELECT extract(epoch FROM wake_at - clock_timestamp())::float8
        FROM delayed_messages
        WHERE wake_at > now()
        ORDER BY wake_at
        LIMIT 1) AS seconds_to_next,
       (SELECT count(*) FROM due) AS locked
FROM (VALUES (1)) AS always
LEFT JOIN sized ON coalesce(sized.before, 0) < {most_bytes}
