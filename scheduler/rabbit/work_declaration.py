"""Declare the work queues that workers own: for commands, named pools and priority classes."""

from concurrent.futures import Future

from pika.exceptions import ChannelClosedByBroker

from scheduler.domain.names import WORK_EXCHANGE
from scheduler.domain.targets.pools import CLASS_RANKS, in_class
from scheduler.ops.logs import get_logger
from scheduler.rabbit.link import Link
from scheduler.rabbit.topology import PermissionRefused, declaration_error, work_arguments

log = get_logger(__name__)


def declare_work(link: Link, queue: str, key: str, queue_type: str) -> None:
    """Declare a queue and bind it to a routing key of schedule.work. Raises Misconfigured or Unavailable."""
    channel = link.channel(essential=False)

    def act(future: Future[None]) -> None:
        def closed(_: object, error: BaseException) -> None:
            if not future.done():
                by_broker = isinstance(error, ChannelClosedByBroker)
                future.set_exception(declaration_error(error, link.broker) if by_broker else error)

        channel.add_on_close_callback(closed)
        channel.queue_declare(queue, durable=True, arguments=work_arguments(queue_type))
        channel.queue_bind(queue, WORK_EXCHANGE, key, callback=lambda _: future.set_result(None))

    link.call(act)
    link.post(lambda: channel.is_open and channel.close())


def declare_classes(link: Link, queue: str, key: str, pool: str, queue_type: str) -> dict[str, int]:
    """Declare the queues for high and low work of a pool; return their names with their ranks.

    A user without the permission, for example from release 0.2, gets none: events then use the pool's main queue.
    """
    ranks: dict[str, int] = {}
    for priority, rank in CLASS_RANKS.items():
        name = in_class(queue, pool, priority)
        try:
            declare_work(link, name, in_class(key, pool, priority), queue_type)
        except PermissionRefused as error:
            log.warning("no queue for work of this priority; it waits in the pool's main queue", queue=name,
                        problem=str(error)[:500], do="run sql/roles/rabbitmq.sh again")
            return ranks
        ranks[name] = rank
    return ranks
