-- End a session.
DELETE FROM console_sessions WHERE digest = %s
