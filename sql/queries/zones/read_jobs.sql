-- Read jobs that were planned with one version of one zone and are not due, next first.
SELECT {selected}
FROM jobs
WHERE {by_zone} AND timezone COLLATE "C" = %(zone)s AND coalesce(zone_version, '') = %(version)s
  AND (next_run_at > now() OR next_run_at IS NULL)
ORDER BY next_run_at, id
