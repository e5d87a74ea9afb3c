-- End the statement of a client that disconnected; older servers do not have this setting.
SELECT set_config(name, '5s', false) FROM pg_settings WHERE name = 'client_connection_check_interval'
