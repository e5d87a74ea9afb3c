-- The versions of a job, newest first, as many as fit into a number of bytes; at least one.
SELECT version, at, by, via, {selected}
FROM (
    SELECT version, at, by, via, definition,
           sum(octet_length(definition::text)) OVER (ORDER BY version DESC) - octet_length(definition::text) AS bytes_before
    FROM job_versions
    WHERE job_id = %(job_id)s AND version < %(before)s
) AS stored
CROSS JOIN LATERAL json_populate_record(NULL::jobs, definition) AS defined
WHERE bytes_before < %(most_bytes)s
ORDER BY version DESC
LIMIT %(limit)s
