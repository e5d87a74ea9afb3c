"""Whether a broker answers."""

from collections.abc import Sequence

from pika.exceptions import AMQPError

from scheduler.rabbit.address import open_connection, parameters, place
from scheduler.rabbit.link import reason


def broker_problem(urls: Sequence[str], seconds: float = 3.0) -> str | None:
    """Return what is wrong with every one of these brokers, None if one answers."""
    found = []
    for url in urls:
        how = parameters(url, "probe")
        how.socket_timeout = how.stack_timeout = how.blocked_connection_timeout = seconds
        try:
            open_connection(how).close()
        except (AMQPError, OSError) as error:
            found.append(f"RabbitMQ at {place(url)}: {reason(error)}")
        else:
            return None
    return "; ".join(found)
