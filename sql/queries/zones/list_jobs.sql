-- Ids of jobs that were planned with one version of one zone. A job that is due is emitted as planned: it may have been
-- published already.
SELECT id::text
FROM jobs
WHERE {by_zone} AND timezone COLLATE "C" = %(zone)s AND coalesce(zone_version, '') = %(version)s
  AND (next_run_at > now() OR next_run_at IS NULL)
LIMIT %(limit)s
