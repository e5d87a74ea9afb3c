-- Store the session of a user who signed in with OpenID Connect, and delete expired ones.
WITH expired AS (
    DELETE FROM console_sessions WHERE expires_at <= now()
)
INSERT INTO console_sessions (digest, sub, role, tenant, expires_at)
VALUES (%s, %s, %s, %s, now() + %s)
