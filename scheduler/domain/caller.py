"""The sender of a command."""

from dataclasses import dataclass
from enum import StrEnum


class Via(StrEnum):
    """The interface that received a command."""

    API = "api"
    AMQP = "amqp"
    CLI = "cli"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Caller:
    """The token's sub, the AMQP user, or the user of the command line, with details for the audit."""

    who: str | None
    via: Via
    address: str | None = None
    batch: str | None = None  # the bulk action that the command belongs to
    reason: str | None = None  # as the caller gave it


UNVERIFIED_CALLER = Caller(None, Via.AMQP)  # over AMQP, without a user that the broker has verified
