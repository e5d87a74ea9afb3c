-- Filter for jobs; the planner removes conditions with NULL parameters.
job_type IS NOT NULL
AND (%(status)s IS NULL OR status = %(status)s::job_status)
AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
AND (%(job_type)s IS NULL OR job_type = %(job_type)s)
AND (%(priority)s IS NULL OR priority = %(priority)s::priority OR (%(priority)s = 'normal' AND priority IS NULL))
AND (%(before)s IS NULL OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
AND ({also})
