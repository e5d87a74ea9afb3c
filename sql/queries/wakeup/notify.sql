-- Tell producers that something of a kind falls due from this moment on.
SELECT pg_notify('scheduler_wakeup', %(message)s)
