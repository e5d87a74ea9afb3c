-- Wake producers: rows of a kind are due from this time on.
SELECT pg_notify(coalesce(current_setting('scheduler.wakeup_channel', true), 'scheduler_wakeup'), %(message)s)
