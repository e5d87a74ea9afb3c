-- Filter for jobs in the index jobs_by_zone.
status IN ('pending', 'paused') AND timezone <> 'UTC' AND num_nonnulls(rrule, cron, dtstart) > 0
