"""Declares the queues of work that workers own: those of commands and of named pools."""

from concurrent.futures import Future

from pika.exceptions import ChannelClosedByBroker

from scheduler.domain.names import WORK_EXCHANGE
from scheduler.rabbit.link import Link
from scheduler.rabbit.topology import declaration_error, work_arguments


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
