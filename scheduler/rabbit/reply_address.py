"""The addresses that replies may be sent to."""

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence

from scheduler.domain.names import ANSWERS_QUEUE_PREFIX
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning

log = get_logger(__name__)
_not_allowed = ThrottledWarning(log, "reply not sent: its queue is not allowed")
_malformed = ThrottledWarning(log, "reply not sent: reply_to is not an address that RabbitMQ generated")

DIRECT = "amq.rabbitmq.reply-to"
# The external term of a process identifier, as RabbitMQ encodes it since 3.10: tag, node name with its length, id,
# serial and creation. The node name is a prefix and a hash, so that long host names fit.
_PROCESS = re.compile(rb"\x83Xv(..)([a-z]{1,20}@[0-9]{1,9}).{12}", re.DOTALL)
_KEY_BYTES = 16
MAX_NODES = 16  # of a cluster


class ReplyAddresses:
    """Decides whether a reply may be sent to an address (SCHEDULER_REPLY_QUEUES).

    A reply is published with the sidecar's own permissions, so a client could have it written to queues to which
    the client has no access. RabbitMQ's direct reply-to and the queues in which our workers wait for replies are
    always allowed. If tenants do not trust each other, a user's replies go to that user's queues (`USER:…`), to
    broker-named queues and to the queues in the setting. Otherwise any queue is allowed if the setting lists none.

    An address of direct reply-to must be one that RabbitMQ can decode: RabbitMQ 3 closes the connection over any
    other. Decoding also adds the node name to Erlang's table of atoms, which never shrinks, so the number of node
    names is limited for each user.
    """

    def __init__(self, patterns: Sequence[str] = (), *, untrusted: bool = False) -> None:
        always = (f"{ANSWERS_QUEUE_PREFIX}*", *(("amq.gen-*",) if untrusted else ()))
        expressions = [".*".join(map(re.escape, pattern.split("*"))) for pattern in (*patterns, *always)]
        self._allowed = re.compile("|".join(expressions)).fullmatch if patterns or untrusted else None
        self._strangers = untrusted
        self._nodes_by_user: dict[str | None, set[bytes]] = {}

    def allow(self, name: str | bytes, user_id: str | None) -> bool:
        """Return whether a reply to this broker user may be sent; log and count it if not."""
        if isinstance(name, str) and name.startswith(DIRECT):
            if self._is_direct(name, user_id):
                return True
            _malformed.warning(reply_to=name[:100], user_id=user_id, do="send commands with reply_to = " + DIRECT)
            metrics.replies_dropped.labels("malformed").inc()
            return False
        if self._allowed is None:
            return True
        if isinstance(name, str):
            own = self._strangers and user_id and name.startswith(f"{user_id}:")
            if own or self._allowed(name):
                return True
        _not_allowed.warning(queue=str(name)[:100], do="add it to SCHEDULER_REPLY_QUEUES if replies belong there")
        metrics.replies_dropped.labels("not_allowed").inc()
        return False

    def client(self, name: str | bytes, user_id: str | None) -> str:
        """Return the client that a reply is for: the broker user, or the queue if the user is unknown."""
        return user_id or ("" if self._strangers else str(name))

    def _is_direct(self, name: str, user_id: str | None) -> bool:
        node = _direct_node(name)
        if node is None:
            return False
        nodes = self._nodes_by_user.setdefault(user_id, set())
        if len(nodes) < MAX_NODES:
            nodes.add(node)
        return node in nodes


def _direct_node(name: str) -> bytes | None:
    """Return the node name in an address of direct reply-to, or None if RabbitMQ could not decode the address."""
    process, dot, key = name.removeprefix(f"{DIRECT}.").partition(".")
    try:
        match = _PROCESS.fullmatch(b64decode(process, validate=True))
        well_formed = dot and len(b64decode(key, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return None
    if match is None or not well_formed or int.from_bytes(match[1], "big") != len(match[2]):
        return None
    return match[2]
