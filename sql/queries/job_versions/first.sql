-- Return when and by whom a job with a single version was requested.
SELECT created_at, created_by, coalesce(created_via, 'amqp') FROM jobs WHERE id = %s
