"""A TCP proxy that can stop forwarding without closing connections: a half-open network."""

import contextlib
import select
import socket
import threading

from scheduler.dev.servers.ports import LOOPBACK


class Proxy:
    """Forward a port to another. While frozen, accept connections but forward nothing."""

    def __init__(self, target_port: int, receive_buffer: int | None = None) -> None:
        """With a small `receive_buffer` a server soon notices that its response is not read."""
        self._receive_buffer = receive_buffer
        self._target = (LOOPBACK, target_port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._open = True
        self._cut = threading.Event()
        self._limit: int | None = None
        self.held: set[socket.socket] = set()  # clients with blocked data in either direction
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def freeze(self) -> None:
        self.held.clear()
        self._flows.clear()

    def freeze_within_a_response(self, after: int) -> None:
        """Freeze once one connection has returned `after` bytes."""
        self._limit = after

    def thaw(self) -> None:
        """Forward again, including blocked data: the harder case of a recovering network."""
        self._limit = None
        self._flows.set()

    def cut(self) -> None:
        """Close and reject every connection, as if the server were down."""
        self._cut.set()

    def restore(self) -> None:
        """Accept connections again."""
        self._cut.clear()

    def close(self) -> None:
        self._open = False
        self._flows.set()
        self._listener.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._cut.is_set():
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._pass(client)
        server = socket.socket()
        if self._receive_buffer is not None:  # the window is agreed when the connection opens
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        server.settimeout(5)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            client.close()
            return
        server.settimeout(None)
        both = {client: server, server: client}
        bytes_returned = 0
        with client, server, contextlib.suppress(OSError):
            while self._open and not self._cut.is_set():
                ready, _, _ = select.select(list(both), [], [], 0.1)
                for source in ready:
                    self._pass(client)
                    data = source.recv(65536)
                    if not data:
                        return
                    both[source].sendall(data)
                    bytes_returned += len(data) if source is server and self._limit else 0
                    if self._limit and bytes_returned > self._limit:
                        self.freeze()

    def _pass(self, client: socket.socket) -> None:
        if not self._flows.is_set():
            self.held.add(client)
        self._flows.wait()
