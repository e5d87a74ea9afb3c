-- Record zone files, in the order of their names, so that two sessions never deadlock.
INSERT INTO zone_files (version, name, data)
SELECT %(version)s, name, data
FROM unnest(%(names)s::text[], %(files)s::bytea[]) AS added (name, data)
ORDER BY name
ON CONFLICT DO NOTHING
