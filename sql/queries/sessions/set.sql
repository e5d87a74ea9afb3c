-- Change a setting for the session.
SELECT set_config(%(name)s, %(value)s, false)
