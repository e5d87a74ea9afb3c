-- Some of the jobs that are wanted, whichever are found first.
SELECT id, created_at, tenant, status, created_by FROM jobs WHERE {wanted} LIMIT %(limit)s
