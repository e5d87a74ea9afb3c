-- Filter by one tenant, or all.
job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
