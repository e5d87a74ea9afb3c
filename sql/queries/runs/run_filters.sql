-- Filter for runs; the planner removes conditions with NULL parameters.
(%(status)s IS NULL OR status = %(status)s::run_status)
AND (%(job_id)s IS NULL OR job_id = %(job_id)s::uuid)
AND (%(job_type)s IS NULL OR job_type = %(job_type)s)
AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
AND (%(worker)s IS NULL OR worker = %(worker)s)
AND (%(since)s IS NULL OR due_at >= %(since)s::timestamptz)
AND (%(until)s IS NULL OR due_at < %(until)s::timestamptz)
AND (%(before)s IS NULL OR (due_at, event_id) < (%(before)s::timestamptz, %(before_id)s::uuid))
