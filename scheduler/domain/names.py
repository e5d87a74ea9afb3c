"""Names of the contract's exchanges and queues. Hosts use them too, so they never change."""

COMMANDS_EXCHANGE = "schedule.commands"
EVENTS_EXCHANGE = "schedule.events"
DEAD_EXCHANGE = "schedule.dead"
WORK_EXCHANGE = "schedule.work"
DELAY_EXCHANGE = "schedule.delay"
DELAYED_EXCHANGE = "schedule.delayed"

INBOX_QUEUE = "scheduler_inbox"
RESULTS_QUEUE = "scheduler_results"
DUE_QUEUE = "mainapp_due"
DEAD_QUEUE = "scheduler_dead"
ANSWERS_QUEUE_PREFIX = "scheduler_answers_"  # replies to a worker's results
DELAY_QUEUE = "scheduler_delay"

# Environment variables that a worker sets for a command. They are not settings if the command runs this program.
COMMAND_VARIABLES = ("SCHEDULER_EVENT_ID", "SCHEDULER_JOB_ID", "SCHEDULER_ATTEMPT")


def delay_queue(exchange: str) -> str:
    """Return the queue of messages to be stored and later published to an additional exchange."""
    return f"{DELAY_QUEUE}_{exchange}"


def delay_entry(exchange: str) -> str:
    """Return the entry exchange that delays messages for an additional exchange."""
    return f"{exchange}.delay"


def due_address(route: str | None, work: str | None) -> tuple[str, str]:
    """Return the exchange and the routing key of a ScheduleDue."""
    if work is not None:
        return WORK_EXCHANGE, work
    return EVENTS_EXCHANGE, "due" if route is None else f"due.{route}"
