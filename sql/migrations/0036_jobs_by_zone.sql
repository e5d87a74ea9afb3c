-- Concurrently: the jobs that follow a wall clock, by zone and version of the zone data, so that new data reads only the
-- jobs in zones that it changes. Jobs in UTC and fixed intervals are not in it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_by_zone ON jobs (timezone COLLATE "C", (coalesce(zone_version, '')))
WHERE status IN ('pending', 'paused') AND timezone <> 'UTC' AND num_nonnulls(rrule, cron, dtstart) > 0;
