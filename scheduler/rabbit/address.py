"""Parse AMQP URLs: address, user, certificates and timeouts."""

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPConnectionError

from scheduler.domain.errors import Misconfigured

OPEN_TIMEOUT = 15.0
MIN_FRAME = 8192  # RabbitMQ 4.1 and later cut off a client that asks for less; older ones use what is agreed
HEARTBEAT = 10  # a silent peer is noticed by the broker within two of these, by us within three
# As in RabbitMQ's own clients: https://www.rabbitmq.com/docs/uri-query-parameters
_TLS = ("cacertfile", "certfile", "keyfile", "verify", "server_name_indication")


class _WrongTlsError(Exception):
    """Invalid TLS parameters. The text quotes nothing from the URL, so it can be shown."""


def parameters(url: str, name: str) -> pika.URLParameters:
    """Return the connection parameters of a URL, with our timeouts as defaults."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    tls = {key: value for key, value in query if key in _TLS}
    rest = [(key, value) for key, value in query if key not in _TLS]
    if parts.username and not parts.password:
        raise Misconfigured(f"AMQP_URL, for {broker_name(url)}: the password of user {user(url)!r} is missing")
    try:
        settings = pika.URLParameters(urlunsplit(parts._replace(query=urlencode(rest))))
        if tls and parts.scheme != "amqps":
            raise _WrongTlsError("certificates need amqps://")
        if parts.scheme == "amqps":
            settings.ssl_options = _tls(tls, settings.host)
    except Exception as error:  # noqa: BLE001 - pika reads `ssl_options` as Python, and quotes what it cannot read
        raise Misconfigured(f"AMQP_URL, for {broker_name(url)}: {_problem(error)}") from None
    if "heartbeat" not in dict(rest):
        settings.heartbeat = HEARTBEAT
    settings.frame_max = max(settings.frame_max, MIN_FRAME)
    settings.socket_timeout = settings.stack_timeout = OPEN_TIMEOUT
    settings.connection_attempts = 1
    settings.client_properties = {"connection_name": f"scheduler {name}"}
    return settings


def broker_name(url: str) -> str:
    """Return a broker's host and port for log lines, without credentials."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (5671 if parts.scheme == 'amqps' else 5672)}"


def user(url: str) -> str:
    """Return the broker user in a URL."""
    return unquote(urlsplit(url).username or "guest")


def virtual_host(url: str) -> str:
    """Return the virtual host in a URL."""
    return unquote(urlsplit(url).path.removeprefix("/")) or "/"


def _tls(options: dict[str, str], host: str) -> pika.SSLOptions:
    """Verify the broker with the system's authorities or `cacertfile`; present the client certificate, if any."""
    context = ssl.create_default_context(cafile=options.get("cacertfile"))
    verify = options.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise _WrongTlsError("verify must be verify_peer or verify_none")
    if verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "certfile" in options:
        context.load_cert_chain(options["certfile"], options.get("keyfile"))
    elif "keyfile" in options:
        raise _WrongTlsError("keyfile needs certfile")
    return pika.SSLOptions(context, options.get("server_name_indication", host))


def _problem(error: Exception) -> str:
    """Describe the problem without values: a mistyped URL may contain its password anywhere."""
    if isinstance(error, ssl.SSLError):
        detail = error.reason or "unreadable"
        return f"the certificates cannot be used ({detail}); check cacertfile, certfile and keyfile"
    if isinstance(error, OSError):
        return f"a certificate file cannot be read: {error.strerror}"
    return str(error) if isinstance(error, _WrongTlsError) else "a query parameter is invalid"


def open_connection(settings: pika.ConnectionParameters, **options: Any) -> pika.BlockingConnection:
    """Open a blocking connection; every failure is an AMQPError or an OSError.

    If the broker accepts TCP and does not respond, pika raises an AMQPConnectorException, which is neither.
    """
    try:
        return pika.BlockingConnection(settings, **options)
    except AMQPConnectorException as error:
        raise AMQPConnectionError(f"the broker does not respond ({type(error).__name__})") from error
