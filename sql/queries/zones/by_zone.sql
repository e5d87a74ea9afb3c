-- Filter for jobs in the index jobs_by_zone_rules.
status IN ('pending', 'paused') AND timezone <> 'UTC' AND num_nonnulls(rrule, cron, dtstart, calendar, sending_window) > 0
