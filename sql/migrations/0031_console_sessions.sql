-- Sessions of users who signed in with OpenID Connect. A session is a row so that logging out ends it in every replica.
CREATE TABLE console_sessions (
    digest     bytea PRIMARY KEY,                       -- SHA-256 of the cookie's value
    sub        text NOT NULL,
    role       text NOT NULL,
    tenant     text,                                    -- NULL: all tenants
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

CREATE INDEX console_sessions_expired ON console_sessions (expires_at);
