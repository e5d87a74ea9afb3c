-- List matching jobs in any order.
SELECT id, created_at, tenant, status, created_by FROM jobs WHERE {wanted} LIMIT %(limit)s
