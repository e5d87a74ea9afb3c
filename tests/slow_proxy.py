"""A TCP proxy that delays the server's data, like a long line."""

import contextlib
import queue
import socket
import threading
import time


class SlowProxy:
    """Forwards its own port; `delay` is in seconds and may change at any time."""

    def __init__(self, target: tuple[str, int], delay: float = 0.0) -> None:
        self.delay = delay
        self.limit: int | None = None  # of bytes from clients: the rest is never passed on
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, server]
            late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            threading.Thread(target=self._pass, args=(client, lambda data, server=server: self._limited(
                server, data)), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, lambda data, late=late: late.put(
                (time.monotonic() + self.delay, data))), daemon=True).start()
            threading.Thread(target=self._pass_late, args=(late, client), daemon=True).start()

    def _limited(self, server, data) -> None:
        if self.limit is None:
            server.sendall(data)
            return
        passed, self.limit = data[: self.limit], self.limit - len(data[: self.limit])
        server.sendall(passed)

    @staticmethod
    def _pass(source, sink) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                sink(data)
                if not data:
                    return

    @staticmethod
    def _pass_late(late, client) -> None:
        pause = threading.Event()
        with contextlib.suppress(OSError):
            while True:
                at, data = late.get()
                pause.wait(max(0.0, at - time.monotonic()))
                if not data:
                    client.shutdown(socket.SHUT_WR)
                    return
                client.sendall(data)
