"""Who gave a command, and which way."""

from dataclasses import dataclass
from enum import StrEnum


class Via(StrEnum):
    """The door that a command came through."""

    API = "api"
    AMQP = "amqp"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class Caller:
    """The token's sub, the AMQP user, or the user of the command line."""

    who: str | None
    via: Via
    address: str | None = None


UNVERIFIED_CALLER = Caller(None, Via.AMQP)  # over AMQP, without a user that the broker has verified
