-- Delete a job.
DELETE FROM jobs WHERE id = %s
