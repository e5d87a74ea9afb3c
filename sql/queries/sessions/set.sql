-- Set one of our own settings for the session.
SELECT set_config(%(name)s, %(value)s, false)
