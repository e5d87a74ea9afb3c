-- Postpone runs whose message the broker rejected, or whose worker may still report.
UPDATE runs SET wake_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE event_id = ANY (%(ids)s::uuid[])
