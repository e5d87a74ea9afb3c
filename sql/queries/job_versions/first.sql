-- Return the time and the caller of the request of a job with a single version.
SELECT created_at, created_by, coalesce(created_via, 'amqp') FROM jobs WHERE id = %s
