"""The names of the contract's exchanges and queues: hosts know them too, so they never change."""

COMMANDS_EXCHANGE = "schedule.commands"
EVENTS_EXCHANGE = "schedule.events"
DEAD_EXCHANGE = "schedule.dead"

INBOX_QUEUE = "scheduler_inbox"
RESULTS_QUEUE = "scheduler_results"
DUE_QUEUE = "mainapp_due"
DEAD_QUEUE = "scheduler_dead"
