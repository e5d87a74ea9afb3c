-- Add the versions of jobs that were requested again. The first time, add the version before too: until then the job's
-- row was the only record. Keep the newest of each job.
WITH requested AS (
    SELECT requested.*, coalesce(newest.version, 0) AS last,
           row_number() OVER (PARTITION BY requested.job_id ORDER BY position) AS number
    FROM json_to_recordset(%(versions)s)
         AS requested (job_id uuid, position integer, by text, via text, before json, after json)
    CROSS JOIN LATERAL (
        SELECT max(version) AS version FROM job_versions WHERE job_versions.job_id = requested.job_id) AS newest
), original AS (
    INSERT INTO job_versions (job_id, version, at, by, via, definition)
    SELECT job_id, 1, jobs.created_at, jobs.created_by, coalesce(jobs.created_via, 'amqp'), before
    FROM requested
    JOIN jobs ON jobs.id = job_id
    WHERE last = 0 AND number = 1
), added AS (
    INSERT INTO job_versions (job_id, version, by, via, definition)
    SELECT job_id, greatest(last, 1) + number, by, via, after
    FROM requested
)
DELETE FROM job_versions
USING (SELECT job_id, max(greatest(last, 1) + number) AS newest FROM requested GROUP BY job_id) AS present
WHERE job_versions.job_id = present.job_id AND version <= newest - %(kept)s
