"""What can go wrong between a host and the sidecar, each with its own name."""

# ruff: noqa: N818 - each names a state that a host can act on

from collections.abc import Iterable

from scheduler.domain.errors import Problem


class ClientError(Exception):
    """Any error of the host kit."""


class CommandRejected(ClientError):
    """The command can never succeed; `errors` says which field and why."""

    def __init__(self, errors: Iterable[Problem]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{each.field}: {each.problem}" for each in self.errors))


class NoSidecar(ClientError):
    """The broker has no queue for the command: no sidecar has ever started on this virtual host."""


class NoAnswer(ClientError):
    """The command is safe in the queue, but nobody answered in time: is `scheduler consumer` running?"""


class BrokerUnavailable(ClientError):
    """The broker could not be reached, or did not confirm, within the client's timeout."""


class AccessRefused(BrokerUnavailable):
    """The broker refuses the user, the password or the virtual host: trying again does not help."""


class NotInTransaction(ClientError):
    """The connection commits every statement by itself, which would undo what the table is for."""
