-- Let go of a client that vanished in mid-statement; older servers do not have this setting.
SELECT set_config(name, '5s', false) FROM pg_settings WHERE name = 'client_connection_check_interval'
