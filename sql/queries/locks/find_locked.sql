-- Lock the rows that have these keys, without waiting; return the keys of the rows that another transaction has locked.
(WITH free AS MATERIALIZED (
    SELECT {id}
    FROM {table}
    WHERE {key} = ANY ({ids}::uuid[])
    FOR UPDATE SKIP LOCKED
)
SELECT DISTINCT {key}::text
FROM {table}
WHERE {key} = ANY ({ids}::uuid[]) AND {id} NOT IN (SELECT {id} FROM free))
