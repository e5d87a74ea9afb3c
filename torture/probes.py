"""Probes of the harness itself: do both servers answer, does this machine let us run, how large is each process."""

import contextlib
import threading
import time
from typing import Any

import pika
import psycopg2

from torture.courier import parameters
from torture.fleet import Fleet
from torture.history import History

TICK = 0.25


class Probes:
    """Three threads; each tick records the age of each server's newest answer and how late the tick itself was."""

    def __init__(self, history: History, fleet: Fleet, database_url: str, amqp_url: str) -> None:
        self._history = history
        self._fleet = fleet
        self._database_url = database_url
        self._amqp_url = amqp_url
        self._seen = {"database": time.time(), "broker": time.time()}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._tick, self._database, self._broker)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(15)

    def _tick(self) -> None:
        before, count = time.time(), 0
        while not self._stop.wait(TICK):
            now = time.time()
            self._history.add("tick", late=round(now - before - TICK, 3),
                              database=round(now - self._seen["database"], 3),
                              broker=round(now - self._seen["broker"], 3))
            before, count = now, count + 1
            if count % 2 == 0:
                for member in self._fleet.members:
                    self._history.add("rss", member=member.name, bytes=member.rss())

    def _database(self) -> None:
        connection: Any = None
        while not self._stop.wait(0.4):
            try:
                if connection is None:
                    connection = psycopg2.connect(self._database_url, connect_timeout=5)
                    connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                self._seen["database"] = time.time()
            except psycopg2.Error:
                connection = None
        if connection:
            connection.close()

    def _broker(self) -> None:
        connection: Any = None
        while not self._stop.wait(0.4):
            try:
                if connection is None:
                    connection = pika.BlockingConnection(parameters(self._amqp_url))
                    channel = connection.channel()
                    channel.confirm_delivery()
                    queue = channel.queue_declare("", exclusive=True).method.queue
                channel.basic_publish("", queue, b"probe")
                channel.basic_get(queue, auto_ack=True)
                self._seen["broker"] = time.time()
            except Exception:  # noqa: BLE001 - after any error the broker counts as unresponsive
                with contextlib.suppress(Exception):
                    connection.close()
                connection = None
        if connection:
            with contextlib.suppress(Exception):
                connection.close()
