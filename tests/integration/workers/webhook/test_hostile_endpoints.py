"""Hostile endpoints: every attempt ends with a clear outcome, memory is bounded, and the worker continues."""

import asyncio
import datetime as dt
import socket
import ssl
import threading
import zlib
from contextlib import ExitStack
from ipaddress import ip_address

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from endpoints import answer, endless, endpoint, event, raw, results, silent, slowly
from support import DEADLINE, Process, until

from scheduler.settings import Settings
from scheduler.workers.webhook import address_guard, exchange, http_call
from scheduler.workers.webhook.http_call import WebhookCaller
from scheduler.workers.webhook.request import WebhookRequest
from scheduler.workers.webhook.response import MAX_BODY

HEAD = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"x" * 65536
BOMB = zlib.compress(b"\x00" * 100_000_000, 9)
MAX_GROWTH = 60 * 1024 * 1024
LONG = 120  # seconds: the machine is busy with all of them at once
TIMEOUT = 900  # the longest that a job may ask for; a call that lasts so long fails the test by its deadline


# Behaviour of the endpoint, timeout if it never ends, and the expected outcome.
HOSTILE = {
    "never answers": (silent, 1, "failed", "within 1 s"),
    "a byte a second": (slowly(HEAD + b"Content-Length: 1000\r\n\r\n", b"x", 0.2), 1, "failed", "within 1 s"),
    "endless body": (endless(HEAD + b"\r\n", MANY), LONG, "succeeded", None),
    "endless chunks": (endless(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"), LONG, "succeeded", None),
    "endless headers": (endless(HEAD, b"X-A: " + b"b" * 100 + b"\r\n"), LONG, "failed", "invalid HTTP"),
    "a header of 1 MB": (raw(HEAD + b"X-A: " + b"b" * 1_000_000 + b"\r\n\r\n"), LONG, "failed", "invalid HTTP"),
    "an endless status line": (endless(b"HTTP/1.1 200 ", MANY), LONG, "failed", "invalid HTTP"),
    "a compressed bomb": (answer(200, BOMB, content_encoding="deflate"), LONG, "succeeded", None),
    "closes at once": (raw(b""), LONG, "failed", "closed"),
    "closes within its headers": (raw(HEAD + b"Content-Le"), LONG, "failed", "closed"),
    "closes within its body": (raw(HEAD + b"Content-Length: 100\r\n\r\nabc"), LONG, "failed", "invalid HTTP"),
    "a redirect inside": (answer(302, location="http://169.254.169.254/"), LONG, "failed", "not followed"),
    "204": (answer(204), LONG, "succeeded", None),
    "205": (answer(205), LONG, "succeeded", None),
    "304": (raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"), LONG, "failed", "304"),
    "20 interim responses": (raw(INTERIM * 20 + HEAD + b"\r\n"), LONG, "succeeded", None),
    "21 interim responses": (raw(INTERIM * 21 + HEAD + b"\r\n"), LONG, "failed", "more than 20 interim responses"),
    "endless 100": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), LONG, "failed", "interim responses"),
    "endless 102": (endless(b"", (b"HTTP/1.1 102 Processing\r\n" + b"X-A: b\r\n" * 50 + b"\r\n") * 50), LONG,
                    "failed", "interim responses"),
    "endless 103": (endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 20), LONG, "failed",
                    "interim responses"),
    "interim responses with 100 KiB of headers": (
        raw((b"HTTP/1.1 103 Early Hints\r\n" + b"Link: " + b"a" * 7000 + b"\r\n\r\n") * 15 + HEAD + b"\r\n"), LONG,
        "failed", "64 KiB of headers"),
    "endless empty lines": (endless(b"", b"\r\n" * 10_000), LONG, "failed", "64 KiB of headers"),
    "an endless chunk extension": (endless(CHUNKED + b"1;", b"x" * 1000), LONG, "failed", "256 KiB"),
    "endless chunk extensions": (endless(CHUNKED, b"1;" + b"x" * 1000 + b"\r\na\r\n"), LONG, "failed", "256 KiB"),
    "endless chunks of a byte": (endless(CHUNKED, b"1\r\na\r\n" * 1000), LONG, "succeeded", None),
    "endless trailers": (endless(CHUNKED + b"0\r\n", b"X-A: " + b"b" * 4000 + b"\r\n"), LONG, "failed", "256 KiB"),
    "single bytes": (endless(CHUNKED + b"1;", b"x"), LONG, "failed", "exceeded a limit"),
    "endless responses": (endless(b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 1000), LONG, "succeeded",
                          None),
    "switches protocols": (raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), LONG,
                           "failed", "101"),
    "HTTP/1.0": (raw(b"HTTP/1.0 200 OK\r\n\r\nold"), LONG, "succeeded", None),
    "garbage": (raw(b"\x00\xff\x13\x37" * 100), LONG, "failed", "invalid HTTP"),
    "garbage as chunks": (raw(CHUNKED + b"zz\r\nnot chunks"), LONG, "failed", "invalid HTTP"),
    "two lengths": (raw(HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), LONG, "failed",
                    "invalid HTTP"),
    "a lie about its length": (raw(HEAD + b"Content-Length: 99999999999\r\n\r\n" + MANY), LONG, "succeeded", None),
    "an odd charset": (raw(HEAD + b"Content-Type: a/b; charset=punycode\r\n\r\n" + MANY), LONG, "succeeded", None),
    "an odd Retry-After": (answer(503, retry_after="\xb2 weeks"), LONG, "failed", "503"),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate authority, and contexts with its certificates: valid, for another name, expired."""
    where = tmp_path_factory.mktemp("tls")
    now = dt.datetime.now(dt.UTC)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])

    def certificate(subject, key, names, until_days, *, ca=False):
        made = (
            x509.CertificateBuilder().subject_name(subject).issuer_name(authority).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=30))
            .not_valid_after(now + dt.timedelta(days=until_days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if ca:
            usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment",
                                   "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False)
            made = made.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (where / "ca.pem").write_bytes(certificate(authority, authority_key, [], 30, ca=True))

    def context(name, names, until_days):
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                serialization.NoEncryption())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        file = where / f"{name}.pem"
        file.write_bytes(certificate(subject, key, names, until_days) + pem)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(file)
        return made

    ours = [x509.IPAddress(ip_address("127.0.0.1"))]
    return where / "ca.pem", {
        "right": context("right", ours, 1), "expired": context("expired", ours, -1),
        "other": context("other", [x509.DNSName("other.example")], 1),
    }


@pytest.fixture
def worker(amqp_url, certificates):
    process = Process("worker", {"AMQP_URL": amqp_url, "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8",
                                 "SSL_CERT_FILE": str(certificates[0]), "LOG_LEVEL": "debug"}).ready()
    yield process
    assert process.stop() == 0


def test_each_hostile_endpoint_has_a_clear_outcome_in_bounded_memory(worker, host):
    process = psutil.Process(worker.popen.pid)
    with ExitStack() as servers:
        server = servers.enter_context(endpoint())
        # Initialise TLS, the parser and the first buffers.
        host.publish("webhook", event(server.url("/warm")), exchange="schedule.work")
        results(host, 1)
        before, asked = process.memory_info().rss, {}
        for name, (behaviour, seconds, *_) in HOSTILE.items():
            # One after another: the endpoint closes the connection after a 304, and a concurrent call
            # would reuse it.
            own = servers.enter_context(endpoint())
            asked[name] = event(own.on("/", behaviour), timeout=seconds)
            host.publish("webhook", asked[name], exchange="schedule.work")
        peak, found = before, {}
        while len(found) < len(asked):
            found |= results(host, 1)
            peak = max(peak, process.memory_info().rss)
        host.publish("webhook", event(server.url("/fine")), exchange="schedule.work")
        assert results(host, 1).popitem()[1]["status"] == "succeeded"
    told = {name: found[each["event_id"]] for name, each in asked.items()}
    assert {name: each["status"] for name, each in told.items()} == {
        name: expected for name, (_, _, expected, _) in HOSTILE.items()
    }
    for name, (_, _, _, words) in HOSTILE.items():
        assert words is None or words in told[name]["error"], (name, told[name])
        assert told[name].get("retry", True)
        assert len(told[name].get("output", {}).get("body", "").encode()) <= 3 * MAX_BODY
    assert len(told["endless body"]["output"]["body"]) == MAX_BODY
    assert told["HTTP/1.0"]["output"]["body"] == "old"
    assert "retry_in" not in told["an odd Retry-After"]
    assert peak - before < MAX_GROWTH
    until(lambda: host.channel.queue_declare("scheduler_webhooks", passive=True).method.message_count == 0, "acks")


@pytest.mark.usefixtures("worker")
def test_certificates_are_checked(host, certificates):
    told = {}
    for name, context in certificates[1].items():
        with endpoint(tls=context) as server:
            host.publish("webhook", event(server.url("/")), exchange="schedule.work")
            [told[name]] = results(host, 1).values()
    assert told["right"]["status"] == "succeeded"
    assert (told["expired"]["status"], told["other"]["status"]) == ("failed", "failed")
    assert "expired" in told["expired"]["error"]
    assert "TLS" in told["other"]["error"]
    assert "mismatch" in told["other"]["error"] or "match" in told["other"]["error"]


FLOODS = {name: HOSTILE[name] for name in (
    "endless 100", "endless 102", "endless 103", "endless empty lines", "an endless chunk extension",
    "endless chunk extensions", "endless trailers", "single bytes",
)}


@pytest.mark.usefixtures("worker")
def test_calls_to_other_endpoints_complete_while_endpoints_flood(host):
    with ExitStack() as servers:
        asked, fine = {}, []
        good = servers.enter_context(endpoint())
        for _ in range(4):
            for name, (behaviour, *_) in FLOODS.items():
                own = servers.enter_context(endpoint())
                flood = event(own.on("/", behaviour), timeout=TIMEOUT) | {"tenant": "noisy"}
                asked[flood["event_id"]] = name
                host.publish("webhook", flood, exchange="schedule.work")
            call = event(good.url("/")) | {"tenant": "quiet"}
            fine.append(call["event_id"])
            host.publish("webhook", call, exchange="schedule.work")
        told = results(host, len(asked) + len(fine))
    assert {told[each]["status"] for each in fine} == {"succeeded"}
    for event_id, name in asked.items():
        assert told[event_id]["status"] == "failed"
        assert FLOODS[name][3] in told[event_id]["error"]
        assert told[event_id].get("retry", True)


@pytest.fixture
def sockets(monkeypatch):
    """Record the sockets of every connection."""
    made, bounded_socket = [], address_guard.bounded_socket

    def record(info):
        made.append(bounded_socket(info))
        return made[-1]

    monkeypatch.setattr(address_guard, "bounded_socket", record)
    monkeypatch.setattr(http_call, "bounded_socket", record)
    return made


def call(url, after=None, **settings):
    """Make one call with the longest timeout, and return its outcome."""

    async def run():
        caller = WebhookCaller(Settings(webhook_allow=("127.0.0.1",), **settings))
        caller.open()
        try:
            async with asyncio.timeout(DEADLINE):
                called = await caller.call(WebhookRequest("GET", url, {}, None, TIMEOUT), "there", "127.0.0.1", 60)
                while after is not None and not after():  # noqa: ASYNC110 - set by a thread
                    await asyncio.sleep(0.01)
        finally:
            await caller.close()
        return called.outcome

    return asyncio.run(run())


def bounded(sockets):
    """Return whether there was one connection, with little data read."""
    [(received, reads)] = [each.received for each in sockets]
    return 0 < received <= (256 + 16) * 1024 and reads <= 1024


@pytest.mark.parametrize("way", ["directly", "session", "proxy"])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_cut_off_after_few_bytes_and_reads(monkeypatch, sockets, name, way):
    behaviour, _, _, words = FLOODS[name]
    if way == "session":
        monkeypatch.setattr(http_call, "is_supported", lambda: False)
    with endpoint() as server:
        server.on("/", behaviour)
        server.on("http://127.0.0.1/", behaviour)  # as a proxy is asked for it
        url = "http://127.0.0.1/" if way == "proxy" else server.url("/")
        outcome = call(url, webhook_proxy=server.url("") if way == "proxy" else None)
    assert outcome.status == "failed"
    assert outcome.retry
    assert words in outcome.error
    assert bounded(sockets)


def test_a_flood_in_reply_to_connect_is_cut_off(sockets):
    with endpoint() as proxy:
        proxy.on("127.0.0.1:443", FLOODS["endless 102"][0])
        outcome = call("https://127.0.0.1/", webhook_proxy=proxy.url(""))
    assert outcome.status == "failed"
    assert "interim responses" in outcome.error
    assert bounded(sockets)


@pytest.mark.parametrize("way", ["directly", "session"])
def test_a_body_that_becomes_malformed_fails_at_once(monkeypatch, way):
    if way == "session":
        monkeypatch.setattr(http_call, "is_supported", lambda: False)
    reading, read_beginning = threading.Event(), http_call.read_beginning

    async def signal_and_read(content, most):
        reading.set()
        return await read_beginning(content, most)

    monkeypatch.setattr(http_call, "read_beginning", signal_and_read)
    monkeypatch.setattr(exchange, "read_beginning", signal_and_read)

    def act(connection, received):
        connection.sendall(CHUNKED + b"1\r\na\r\n")
        assert reading.wait(DEADLINE)  # the error comes in a later read than the headers
        connection.sendall(b"not a chunk\r\n")
        silent(connection, received)

    with endpoint() as server:
        outcome = call(server.on("/", act))
    assert outcome.status == "failed"
    assert "invalid HTTP: Invalid character in chunk size" in outcome.error


@pytest.mark.parametrize("flood", ["session tickets", "records of a byte"])
def test_a_flood_under_tls_is_cut_off(monkeypatch, sockets, certificates, flood):
    authority, contexts = certificates
    trusted = ssl.create_default_context(cafile=str(authority))
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusted)
    context = contexts["right"]
    behaviour = endless(CHUNKED + b"1;", b"x")
    if flood == "session tickets":
        monkeypatch.setattr(context, "num_tickets", 1_000_000)
    with endpoint(tls=context) as server:
        outcome = call(server.on("/", behaviour))
    assert outcome.status == "failed"
    assert "exceeded a limit" in outcome.error
    assert bounded(sockets)


def test_a_connection_that_sends_data_after_its_response_is_closed(sockets):
    closed, go = threading.Event(), threading.Event()

    def later(connection, _):
        connection.sendall(HEAD + b"Content-Length: 2\r\n\r\nok")
        go.wait(DEADLINE)
        try:
            endless(b"", HEAD + b"Content-Length: 0\r\n\r\n")(connection, _)
        except OSError:
            closed.set()

    def done():
        go.set()
        return closed.is_set()

    with endpoint() as server:
        outcome = call(server.on("/", later), after=done)
    assert outcome.output["body"] == "ok"
    assert sockets[0].received[0] <= 32 * 1024


def test_a_response_in_many_small_packets_is_read_whole(sockets):
    def act(connection, _):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HEAD + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000:
            connection.sendall(bytes([byte]))

    with endpoint() as server:
        outcome = call(server.on("/", act))
    assert outcome.output["body"] == "x" * 5000
    assert bounded(sockets)
