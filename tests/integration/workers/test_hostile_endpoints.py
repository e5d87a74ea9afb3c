"""Whatever an endpoint does, its attempt ends in a clear outcome, in bounded memory, and the worker goes on."""

import datetime as dt
import ssl
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
from support import Process, until

from scheduler.workers.webhook.answer import MOST_BODY

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"x" * 65536
BOMB = zlib.compress(b"\x00" * 100_000_000, 9)
MOST_GROWTH = 60 * 1024 * 1024
LONG = 120  # seconds: the machine is busy with all of them at once


# What the endpoint does, the seconds it gets where it would take for ever, and what comes of it.
HOSTILE = {
    "never answers": (silent, 1, "failed", "within 1 s"),
    "a byte a second": (slowly(HEAD + b"Content-Length: 1000\r\n\r\n", b"x", 0.2), 1, "failed", "within 1 s"),
    "endless body": (endless(HEAD + b"\r\n", MANY), LONG, "succeeded", None),
    "endless chunks": (endless(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"), LONG, "succeeded", None),
    "endless headers": (endless(HEAD, b"X-A: " + b"b" * 100 + b"\r\n"), LONG, "failed", "not HTTP"),
    "a header of 1 MB": (raw(HEAD + b"X-A: " + b"b" * 1_000_000 + b"\r\n\r\n"), LONG, "failed", "not HTTP"),
    "an endless status line": (endless(b"HTTP/1.1 200 ", MANY), LONG, "failed", "not HTTP"),
    "a compressed bomb": (answer(200, BOMB, content_encoding="deflate"), LONG, "succeeded", None),
    "closes at once": (raw(b""), LONG, "failed", "closed"),
    "closes within its headers": (raw(HEAD + b"Content-Le"), LONG, "failed", "closed"),
    "closes within its body": (raw(HEAD + b"Content-Length: 100\r\n\r\nabc"), LONG, "failed", "not HTTP"),
    "a redirect inside": (answer(302, location="http://169.254.169.254/"), LONG, "failed", "not followed"),
    "204": (answer(204), LONG, "succeeded", None),
    "205": (answer(205), LONG, "succeeded", None),
    "304": (raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"), LONG, "failed", "304"),
    "1xx for ever": (endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 20), 1, "failed", "within 1 s"),
    "switches protocols": (raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), LONG,
                           "failed", "101"),
    "HTTP/1.0": (raw(b"HTTP/1.0 200 OK\r\n\r\nold"), LONG, "succeeded", None),
    "garbage": (raw(b"\x00\xff\x13\x37" * 100), LONG, "failed", "not HTTP"),
    "garbage as chunks": (raw(CHUNKED + b"zz\r\nnot chunks"), LONG, "failed", "not HTTP"),
    "two lengths": (raw(HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), LONG, "failed", "not HTTP"),
    "a lie about its length": (raw(HEAD + b"Content-Length: 99999999999\r\n\r\n" + MANY), LONG, "succeeded", None),
    "an odd charset": (raw(HEAD + b"Content-Type: a/b; charset=punycode\r\n\r\n" + MANY), LONG, "succeeded", None),
    "an odd Retry-After": (answer(503, retry_after="\xb2 weeks"), LONG, "failed", "503"),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority of our own, and contexts with certificates that it gave: right, for another name, expired."""
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
        # What every call takes once: TLS, the parser, the first buffers.
        host.publish("webhook", event(server.url("/warm")), exchange="schedule.work")
        results(host, 1)
        before, asked = process.memory_info().rss, {}
        for name, (behaviour, seconds, *_) in HOSTILE.items():
            # Each by itself: a 304 leaves a connection to be used again, which this one closes, and another call
            # would find that out.
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
        assert len(told[name].get("output", {}).get("body", "").encode()) <= 3 * MOST_BODY
    assert len(told["endless body"]["output"]["body"]) == MOST_BODY
    assert told["HTTP/1.0"]["output"]["body"] == "old"
    assert "retry_in" not in told["an odd Retry-After"]
    assert peak - before < MOST_GROWTH
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
