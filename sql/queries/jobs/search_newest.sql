-- The newest jobs whose id, name or type has this prefix: the few with such an id or name, and the newest of each
-- matching type. If there are many, walk the list itself, which finds a page quickly.
WITH RECURSIVE types_of_jobs AS ({types_of_jobs}),
types_that_recur AS ({types_that_recur}),
types AS MATERIALIZED (
    (SELECT job_type FROM types_of_jobs WHERE job_type IS NOT NULL LIMIT %(most_types)s + 1)
    UNION
    (SELECT job_type FROM types_that_recur WHERE job_type IS NOT NULL LIMIT %(most_types)s + 1)
),
few AS MATERIALIZED (
    (SELECT id AS found_id FROM jobs WHERE id BETWEEN %(lowest)s::uuid AND %(highest)s::uuid ORDER BY id LIMIT %(few)s + 1)
    UNION
    (SELECT id FROM jobs WHERE name LIKE %(q)s ORDER BY name USING ~<~ LIMIT %(few)s + 1)
),
many AS MATERIALIZED (
    SELECT (SELECT count(*) FROM types) > %(most_types)s OR (SELECT count(*) FROM few) > %(few)s AS found
)
(SELECT id, created_at, tenant, status, created_by
 FROM few
 CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.id = found_id OFFSET 0) AS known
 WHERE NOT (SELECT found FROM many) AND {wanted}
 UNION
 SELECT newest.*
 FROM types CROSS JOIN LATERAL ({newest_of_type}) AS newest
 WHERE NOT (SELECT found FROM many))
UNION ALL
SELECT newest.* FROM ({newest}) AS newest WHERE (SELECT found FROM many)
