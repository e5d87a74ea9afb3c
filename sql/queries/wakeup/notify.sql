-- Wake producers: rows of a kind are due from this time on.
SELECT pg_notify('scheduler_wakeup', %(message)s)
