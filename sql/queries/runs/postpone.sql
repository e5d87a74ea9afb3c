-- Look again later at runs whose message the broker refused, or whose worker may yet be heard of.
UPDATE runs SET wake_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE event_id = ANY (%(ids)s::uuid[])
