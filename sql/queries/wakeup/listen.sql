-- Listen for wakeups from consumers.
LISTEN "{channel}"
