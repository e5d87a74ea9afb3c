-- Delete all versions of a job.
DELETE FROM job_versions WHERE job_id = %s
