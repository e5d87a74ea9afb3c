-- Concurrently: the jobs that new zone data may move. Unlike jobs_by_zone, also fixed intervals and given instants if their
-- calendar or window follows the zone. Release 0.2 uses neither index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_by_zone_rules ON jobs (timezone COLLATE "C", (coalesce(zone_version, '')))
WHERE status IN ('pending', 'paused') AND timezone <> 'UTC'
      AND num_nonnulls(rrule, cron, dtstart, calendar, sending_window) > 0;
DROP INDEX CONCURRENTLY IF EXISTS jobs_by_zone;
