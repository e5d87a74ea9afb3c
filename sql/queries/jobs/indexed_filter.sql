-- Jobs in the list indexes: all except pending recurring jobs.
job_type IS NOT NULL AND (status <> 'pending' OR (rrule IS NULL AND cron IS NULL AND every IS NULL))
