-- Find the user of a session.
SELECT sub, role, tenant, extract(epoch FROM created_at)::float8
FROM console_sessions
WHERE digest = %s AND expires_at > now()
