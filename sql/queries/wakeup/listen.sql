-- Listen for wakeups from consumers.
LISTEN scheduler_wakeup
