-- Count the jobs to be planned again.
SELECT count(*)
FROM unnest(%(zones)s::text[], %(versions)s::text[]) AS outdated (zone, version)
JOIN jobs ON timezone COLLATE "C" = zone COLLATE "C" AND coalesce(zone_version, '') = version COLLATE "C"
WHERE {by_zone} AND (next_run_at > now() OR next_run_at IS NULL)
