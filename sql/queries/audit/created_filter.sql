-- Filter for jobs created over AMQP, as audit entries.
created_via IS NULL AND job_type IS NOT NULL
AND (%(via)s IS NULL OR %(via)s = 'amqp')
AND (%(action)s IS NULL OR %(action)s = 'request')
AND (%(kind)s IS NULL OR %(kind)s = 'job')
AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
AND (%(who)s IS NULL OR created_by = %(who)s)
AND (%(job_id)s IS NULL OR id = %(job_id)s::uuid)
AND (%(thing)s IS NULL OR %(job_id)s IS NOT NULL)
AND (%(since)s IS NULL OR created_at >= %(since)s::timestamptz)
AND (%(until)s IS NULL OR created_at < %(until)s::timestamptz)
AND (%(before)s IS NULL OR created_at <= %(before)s::timestamptz)
AND (%(before)s IS NULL OR (created_at, '0' || id::text) < (%(before)s::timestamptz, %(before_place)s))
