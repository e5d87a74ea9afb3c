-- When and by whom a job was requested that was never requested again.
SELECT created_at, created_by, coalesce(created_via, 'amqp') FROM jobs WHERE id = %s
