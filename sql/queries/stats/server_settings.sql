-- Settings of the server as shown, with sizes in bytes and times in seconds.
SELECT name, current_setting(name),
       CASE WHEN unit IN ('8kB', 'kB', 'MB') THEN pg_size_bytes(current_setting(name)) WHEN unit = 's' THEN setting::bigint END,
       coalesce('lz4' = ANY (enumvals), false)
FROM pg_settings WHERE name = ANY (%(names)s)
