-- Which jobs are asked for; what is not asked for is folded away before the plan is made.
job_type IS NOT NULL
AND (%(status)s IS NULL OR status = %(status)s::job_status)
AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
AND (%(job_type)s IS NULL OR job_type = %(job_type)s)
AND (%(priority)s IS NULL OR coalesce(priority, 'normal') = %(priority)s::priority)
AND (%(q)s IS NULL OR job_type LIKE %(q)s OR name LIKE %(q)s
     OR id BETWEEN %(lowest)s::uuid AND %(highest)s::uuid)
AND (%(before)s IS NULL OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
