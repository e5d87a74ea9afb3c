-- Job types with this prefix, by a loose index scan from each type to the next.
(SELECT job_type FROM {table} WHERE {listed} AND job_type LIKE %(q)s ORDER BY job_type USING ~<~ LIMIT 1)
UNION ALL
(SELECT (SELECT job_type FROM {table}
         WHERE {listed} AND job_type LIKE %(q)s AND job_type ~>~ last.job_type
         ORDER BY job_type USING ~<~ LIMIT 1)
 FROM {last} AS last WHERE last.job_type IS NOT NULL)
