"""The API in bad company: clients that never finish, bodies without an end, a database that goes, two writers."""

import itertools
import resource
import selectors
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import psycopg2
import pytest
from api_support import Api, api_port, start_api
from support import DEADLINE, Sidecar, connected, unreachable, until

SLOW_CLIENTS = 10_000


class SlowClients:
    """Connections that send a byte periodically until the server closes them."""

    def __init__(self, port: int, count: int, text: bytes) -> None:
        self.open = selectors.DefaultSelector()
        self.text, self.closed, self.count = text, 0, 0
        self._stop = threading.Event()
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
            client.setblocking(False)
            self.open.register(client, selectors.EVENT_READ, [0])
            self.count += 1
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and self.open.get_map():
            for key, _ in self.open.select(timeout=0):
                self._read(key)
            for key in list(self.open.get_map().values()):
                self._send(key)
            self._stop.wait(1.0)

    def _read(self, key) -> None:
        try:
            gone = not key.fileobj.recv(4096)
        except OSError:
            gone = True
        if gone:
            self._close(key)

    def _send(self, key) -> None:
        at = key.data[0]
        try:
            key.fileobj.send(self.text[at : at + 1] or b"x")
            key.data[0] += 1
        except OSError:
            self._close(key)

    def _close(self, key) -> None:
        self.open.unregister(key.fileobj)
        key.fileobj.close()
        self.closed += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        for key in list(self.open.get_map().values()):
            self._close(key)
        self.open.close()


@pytest.fixture
def many_files():
    """Raise this process's limit of open files to the maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SLOW_CLIENTS + 500:
        pytest.skip(f"this machine allows a process {hard:,} open files, and not one more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, SLOW_CLIENTS + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_slow_senders_are_disconnected_and_block_no_other_client(shared, served):
    port = api_port(next(process for process in shared.processes if process.role == "api"))
    slow = SlowClients(port, SLOW_CLIENTS, b"GET /api/v1/jobs HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"a" * 10_000)

    def all_are_gone():
        assert served.get("/jobs", limit=1).status == 200
        return slow.closed == SLOW_CLIENTS

    try:
        until(all_are_gone, "all of them are closed", within=4 * DEADLINE)
    finally:
        slow.stop()
    assert served.get("/health").status == 200


def raw(port: int, head: bytes, parts) -> bytes:
    """Send a raw request; return the response, up to the end or the closed connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client:
        try:
            client.sendall(head)
            for part in parts:
                client.sendall(part)
        except OSError:
            pass
        client.settimeout(DEADLINE)
        said = b""
        try:
            while more := client.recv(65536):
                said += more
        except OSError:
            pass
        return said


def endless():
    while True:
        yield b"10000\r\n" + b"x" * 65536 + b"\r\n"


@pytest.mark.parametrize(("framing", "parts", "status"), [
    (b"Transfer-Encoding: chunked", endless, b"413"),
    (b"Content-Length: 99999999999", lambda: [b"{"], b"413"),
    (b"Content-Length: 1000001", lambda: [b"x" * 1000001], b"413"),
    (b"Content-Length: 100", lambda: [b"{"], b"408"),  # and nothing more
])
def test_an_endless_body_is_cut_off(shared, served, framing, parts, status):
    port = api_port(next(process for process in shared.processes if process.role == "api"))
    head = (f"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {served.token}\r\n".encode()
            + framing + b"\r\nConnection: close\r\n\r\n")
    received = raw(port, head, parts())
    assert received.startswith(b"HTTP/1.1 " + status) or (not received and parts is endless), received[:200]
    assert b"Traceback" not in received


@pytest.mark.parametrize("bytes_", [1_000_001, 2_000_000, 14_000_000])
def test_a_client_that_sends_a_whole_too_large_body_gets_the_error(served, bytes_):
    """If the connection were closed while it sends, it would see only the broken connection."""
    for _ in range(3):
        answer = served.ask("POST", "/jobs", b"x" * bytes_)
        assert (answer.status, answer.json["status"]) == (413, 413)


@pytest.mark.usefixtures("served")
def test_a_body_that_continues_after_the_response_closes_the_connection(shared):
    """Without Connection: close; what has no token is answered before its body's end, if it has one."""
    port = api_port(next(process for process in shared.processes if process.role == "api"))
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = raw(port, head, endless())  # returns when the server has closed the connection
    assert not received or received.startswith(b"HTTP/1.1 401"), received[:200]


@pytest.mark.parametrize("part", [b"X-More: " + b"a" * 1000 + b"\r\n", b"1;" + b"a" * 1000 + b"\r\nx\r\n"])
def test_chunk_extensions_and_trailers_are_limited(shared, served, part):
    """Trailers and chunk extensions are not part of a body; they have a separate limit."""
    port = api_port(next(process for process in shared.processes if process.role == "api"))
    head = (f"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {served.token}\r\n".encode()
            + b"Transfer-Encoding: chunked\r\n\r\n" + (b"0\r\n" if part.startswith(b"X") else b""))
    received = raw(port, head, itertools.repeat(part))
    assert not received or received[9:10] == b"4", received[:200]
    assert served.get("/health").status == 200


@pytest.mark.parametrize("line", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET /nowhere HTTP/9.9\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 1_000_000,
    b"GET / HTTP/1.1\r\n" + b"X-More: a\r\n" * 100_000,
    b"GET /%00%ff%fe/../..//etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /api/v1/jobs HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
])
def test_a_non_http_request_is_rejected(shared, served, line):
    port = api_port(next(process for process in shared.processes if process.role == "api"))
    received = raw(port, line.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), [])
    # Without a token / leads to the console's login.
    assert not received or received[9:10] in (b"3", b"4"), received[:200]
    assert served.get("/health").status == 200


def hasty(api: Api) -> Api:
    """The same for a request that gets a 503."""
    return replace(api, patient=False)


def test_a_database_outage_returns_503_and_recovers(sidecar):
    api = start_api(sidecar)
    job = api.job()
    with unreachable(sidecar.database_url):
        for method, path, body in (
            ("GET", f"/jobs/{job['id']}", None), ("GET", "/jobs", None), ("GET", "/stats", None),
            ("POST", f"/jobs/{job['id']}/pause", None), ("POST", "/jobs", {"job_type": "a", "every": 60}),
        ):
            answer = hasty(api).ask(method, path, body)
            assert (answer.status, int(answer.headers["Retry-After"]) >= 1) == (503, True), answer.body
            assert urlsplit(sidecar.database_url).password.encode() not in answer.body
        assert api.get("/health").status == 200
        def told():
            response = hasty(api).get("/health/detailed")
            return response if response.json["servers"]["rabbitmq"]["status"] == "ok" else None

        answer = until(told, "a broker that answers in time")
        assert (answer.status, int(answer.headers["Retry-After"]) >= 1) == (503, True)
        assert (answer.json["status"], answer.json["processes"]) == ("down", {})
        servers = answer.json["servers"]
        assert servers["postgres"]["status"] == "unavailable"
        assert servers["postgres"]["problem"]
        until(lambda: sidecar.processes[0].http("/readyz")[0] == 503, "it is not ready")
    until(lambda: api.get(f"/jobs/{job['id']}").status == 200, "it is back")
    until(lambda: api.post(f"/jobs/{job['id']}/pause").status == 200, "and can be written to")
    # Sessions that ended while unused are detected before they are used.
    with connected(sidecar.database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "  # and wait for their end
                       "WHERE datname = current_database() AND pid <> pg_backend_pid()")
    sidecar.processes[0].ready()
    assert api.get(f"/jobs/{job['id']}").status == 200


def test_an_unmigrated_database_is_logged_with_its_remedy(empty_database, vhost):
    sidecar = Sidecar(empty_database, vhost)
    start_api(sidecar, ready=False)
    [process] = sidecar.processes
    assert process.logged("the database is not migrated")["do"] == "run `scheduler migrate`"
    assert sidecar.close() == [0]


def test_a_locked_row_returns_503_and_blocks_no_other_request(sidecar):
    api = start_api(sidecar)
    held, free = api.job(), api.job()
    connection = psycopg2.connect(sidecar.database_url)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (held["id"],))
            with ThreadPoolExecutor(4) as pool:
                waiting = [pool.submit(hasty(api).post, f"/jobs/{held['id']}/pause") for _ in range(4)]
                assert api.post(f"/jobs/{free['id']}/pause").status == 200
                assert api.get(f"/jobs/{held['id']}").status == 200
                assert {each.result().status for each in waiting} == {503}
    finally:
        connection.close()


def test_slow_searches_return_503_and_block_no_other_request(sidecar):
    api = start_api(sidecar, SCHEDULER_API_CONNECTIONS="2")
    job = api.job()
    connection, pool = connected(sidecar.database_url), ThreadPoolExecutor(4)
    beside = connected(sidecar.database_url)
    with (
        connection as connection, connection.cursor() as cursor, pool,
        beside as beside, beside.cursor() as watching,
    ):
        connection.autocommit = False
        cursor.execute("LOCK TABLE run_history")  # queries of runs wait for this
        seen = threading.Event()

        def search(user):
            """Search until the test has seen the waiting statements: each ends after five seconds."""
            answer = hasty(user).get("/runs")
            while not seen.wait(0.1):
                answer = hasty(user).get("/runs")
            return answer

        # One tenant gets all threads but one.
        waiting = [pool.submit(search, user) for user in (api, api.as_("viewer", "globex")) for _ in range(2)]
        ours = ("SELECT pid FROM pg_stat_activity "
                "WHERE application_name = 'scheduler api searches' AND wait_event_type = 'Lock'")
        try:
            until(lambda: watching.execute(ours) or len(watching.fetchall()) == 2, "both searches to wait")
            assert api.get(f"/jobs/{job['id']}").status == 200
            assert api.post(f"/jobs/{job['id']}/pause").status == 200
        finally:
            seen.set()
        answers = [each.result() for each in waiting]
        assert {answer.status for answer in answers} == {503}
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers)
        connection.rollback()
    assert api.get("/runs").status == 200


def test_of_two_writers_with_the_same_etag_one_wins(api: Api):
    job = api.job()
    seen = api.get(f"/jobs/{job['id']}").headers["ETag"]

    def write(number):
        request = {"job_type": f"writer.{number}", "run_at": "2099-01-01T00:00:00Z"}
        return api.ask("PUT", f"/jobs/{job['id']}", request, headers={"If-Match": seen})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [412] * 7
    winner = next(answer for answer in answers if answer.status == 200)
    assert api.get(f"/jobs/{job['id']}").json["job_type"] == winner.json["job_type"]


def test_concurrent_creates_store_a_job_once(api: Api):
    job = api.job()["id"].replace("-", "")
    request = {"id": f"{job[:8]}-0000-4000-8000-{job[-12:]}", "job_type": "a", "run_at": "2099-01-01T00:00:00Z"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.post("/jobs", request), range(8)))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]


def test_commands_change_the_etag_and_emissions_do_not(shared, api: Api):
    shared.start("producer").ready()
    job = api.job(every="PT0.2S", run_at=None)
    seen = api.get(f"/jobs/{job['id']}").headers["ETag"]
    until(lambda: api.get(f"/jobs/{job['id']}").json["occurrence"] >= 2, "two emitted occurrences")
    assert api.get(f"/jobs/{job['id']}").headers["ETag"] == seen
    etags = [seen]
    for verb in ("trigger", "pause", "resume"):
        etags.append(api.post(f"/jobs/{job['id']}/{verb}").headers["ETag"])
        assert api.get(f"/jobs/{job['id']}").headers["ETag"] == etags[-1]
    assert len(set(etags)) == 4
    either = f"{etags[0]}, W/{etags[-1]}"
    assert api.ask("DELETE", f"/jobs/{job['id']}", headers={"If-Match": either}).status == 200
