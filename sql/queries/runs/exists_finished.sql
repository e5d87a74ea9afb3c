-- Tell whether any of these events has a finished run after all: it may have moved while it was looked for here and there.
SELECT EXISTS (SELECT FROM run_history WHERE event_id = ANY (%(ids)s::uuid[]))
