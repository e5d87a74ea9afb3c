"""Store the results of workers, and record for producers which results have been read."""


from scheduler.commands import batch_telemetry
from scheduler.commands.apply_results import record_results
from scheduler.commands.parse_deliveries import parse_result_delivery
from scheduler.commands.result_reader import ResultReader
from scheduler.commands.store_batches import StoredBatch
from scheduler.domain.errors import Unavailable
from scheduler.domain.names import RESULTS_QUEUE
from scheduler.domain.runs.marker import Marker
from scheduler.ops.health import HealthPart
from scheduler.processes.consumer import STOP_SECONDS, Consumer, MessageKind
from scheduler.processes.runtime import Stop
from scheduler.rabbit.batch_consumer import BatchConsumer
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from scheduler.rabbit.outcome_publisher import OutcomePublisher
from scheduler.settings import Settings

RESULTS = MessageKind(RESULTS_QUEUE, parse_result_delivery, record_results, batch_telemetry.count_results)


class ResultsConsumer(Consumer):
    """Consumes results of workers, on a separate connection so that a long queue of requests delays none."""

    kind = RESULTS

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        super().__init__(settings, stop, health)
        self._result_reader: ResultReader | None = None

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process stops."""
        # The reader of the previous connection expires when the broker notices that it was lost.
        self._result_reader = None
        super().run(link)

    def _prepare(self, link: Link) -> bool:
        """Register before results are delivered: producers wait for the results that this consumer holds."""
        connected_at = None if self._result_reader is None else self._result_reader.connected_at
        session = self._free[-1]
        self._result_reader = self._storing.when_available(
            session, lambda: ResultReader(session, link.dropped_after, connected_at), link.check_open
        )
        return self._result_reader is not None

    def _turn(self, inbox: BatchConsumer) -> None:
        if self._free and self._result_reader is not None:
            self._result_reader.turn(self._free[-1], inbox, committed=not self._locked)

    def _finish(self, batch: list[Delivery], stored: StoredBatch, inbox: BatchConsumer,
                publisher: OutcomePublisher) -> None:
        super()._finish(batch, stored, inbox, publisher)
        reader = self._result_reader
        assert reader is not None  # noqa: S101 - it was registered before the first delivery
        reader.finished(len(batch))
        markers = [delivery.read.id for delivery in batch if isinstance(delivery.read, Marker)]
        if markers and self._free and not self._locked:  # otherwise the producer sends another
            reader.read(self._free[-1], inbox, markers)

    def _ended(self, inbox: BatchConsumer) -> None:
        if self._stop:
            try:
                inbox.give_back(STOP_SECONDS)
            except Unavailable:
                return  # producers notice that its heartbeat is missing
        if self._result_reader is not None:
            self._result_reader.leave(self._free[-1])


