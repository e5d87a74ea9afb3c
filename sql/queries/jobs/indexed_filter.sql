-- Which jobs the indexes of lists have: all but the pending ones that recur.
job_type IS NOT NULL AND (status <> 'pending' OR (rrule IS NULL AND cron IS NULL AND every IS NULL))
