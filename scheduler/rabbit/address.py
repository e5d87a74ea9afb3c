"""What an AMQP URL says: where, as whom, and with which certificates."""

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPConnectionError

from scheduler.domain.errors import Misconfigured

OPEN_TIMEOUT = 15.0
HEARTBEAT = 10  # a silent peer is noticed by the broker within two of these, by us within three
# As in RabbitMQ's own clients: https://www.rabbitmq.com/docs/uri-query-parameters
_TLS = ("cacertfile", "certfile", "keyfile", "verify", "server_name_indication")


class _WrongTlsError(Exception):
    """A mistake that we found ourselves: its text has no value of the URL in it, and can be shown."""


def parameters(url: str, name: str) -> pika.URLParameters:
    """Return how to connect: what the URL says, and our own timeouts where it is silent."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    tls = {key: value for key, value in query if key in _TLS}
    rest = [(key, value) for key, value in query if key not in _TLS]
    if parts.username and not parts.password:
        raise Misconfigured(f"AMQP_URL, for {place(url)}: the password of user {user(url)!r} is missing")
    try:
        found = pika.URLParameters(urlunsplit(parts._replace(query=urlencode(rest))))
        if tls and parts.scheme != "amqps":
            raise _WrongTlsError("certificates need amqps://")
        if parts.scheme == "amqps":
            found.ssl_options = _tls(tls, found.host)
    except Exception as error:  # noqa: BLE001 - pika reads `ssl_options` as Python, and quotes what it cannot read
        raise Misconfigured(f"AMQP_URL, for {place(url)}: {_problem(error)}") from None
    if "heartbeat" not in dict(rest):
        found.heartbeat = HEARTBEAT
    found.socket_timeout = found.stack_timeout = OPEN_TIMEOUT
    found.connection_attempts = 1
    found.client_properties = {"connection_name": f"scheduler {name}"}
    return found


def place(url: str) -> str:
    """Name a broker in a log line: host and port, no credentials."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (5671 if parts.scheme == 'amqps' else 5672)}"


def user(url: str) -> str:
    """Return the user that the broker knows us as."""
    return unquote(urlsplit(url).username or "guest")


def virtual_host(url: str) -> str:
    """Return the virtual host that a URL names."""
    return unquote(urlsplit(url).path.removeprefix("/")) or "/"


def _tls(given: dict[str, str], host: str) -> pika.SSLOptions:
    """Verify the broker by the system's authorities or `cacertfile`; show our own certificate if there is one."""
    context = ssl.create_default_context(cafile=given.get("cacertfile"))
    verify = given.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise _WrongTlsError("verify must be verify_peer or verify_none")
    if verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "certfile" in given:
        context.load_cert_chain(given["certfile"], given.get("keyfile"))
    elif "keyfile" in given:
        raise _WrongTlsError("keyfile needs certfile")
    return pika.SSLOptions(context, given.get("server_name_indication", host))


def _problem(error: Exception) -> str:
    """Name the problem without the values: a mistyped URL may have its password anywhere."""
    if isinstance(error, ssl.SSLError):
        why = error.reason or "unreadable"
        return f"the certificates cannot be used ({why}); check cacertfile, certfile and keyfile"
    if isinstance(error, OSError):
        return f"a certificate file cannot be read: {error.strerror}"
    return str(error) if isinstance(error, _WrongTlsError) else "a parameter after the ? is not understood"


def open_connection(how: pika.ConnectionParameters, **options: Any) -> pika.BlockingConnection:
    """Open a blocking connection; every failure is an AMQPError or an OSError.

    If the broker accepts TCP and does not respond, pika raises an AMQPConnectorException, which is neither.
    """
    try:
        return pika.BlockingConnection(how, **options)
    except AMQPConnectorException as error:
        raise AMQPConnectionError(f"the broker does not respond ({type(error).__name__})") from error
