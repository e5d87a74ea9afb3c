"""Errors of the host kit."""

# ruff: noqa: N818 - each names a state that a host can act on

from collections.abc import Iterable

from scheduler.domain.errors import Problem


class ClientError(Exception):
    """Any error of the host kit."""


class CommandRejected(ClientError):
    """The command is invalid; `errors` has the fields and the reasons."""

    def __init__(self, errors: Iterable[Problem]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{error.field}: {error.problem}" for error in self.errors))


class NoSidecar(ClientError):
    """The broker has no queue for the command: no sidecar has ever started on this virtual host."""


class NoAnswer(ClientError):
    """The command is in the queue, but no reply arrived in time: is `scheduler consumer` running?"""


class BrokerUnavailable(ClientError):
    """The broker could not be reached, or did not confirm, within the client's timeout."""


class AccessRefused(BrokerUnavailable):
    """The broker rejects the user, the password or the virtual host; a retry would fail too."""


class NotInTransaction(ClientError):
    """The connection commits every statement automatically, outside the host's transaction."""
