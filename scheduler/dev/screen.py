"""The output of `scheduler dev`: with styles on a terminal, plain in a pipe."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

from scheduler.cli.terminal import plain, styled

_LATE_MS = 100


@dataclass(slots=True)
class Addresses:
    """Addresses and credentials for the user's own programs."""

    amqp_url: str
    database_url: str
    api_url: str | None = None  # without /api/v1
    token: str | None = None
    no_token: str | None = None  # the reason
    console: str | None = None

    def exports(self) -> list[str]:
        """Return the lines that give a shell these addresses."""
        values = {"AMQP_URL": self.amqp_url, "DATABASE_URL": self.database_url, "API_URL": self.api_url,
                  "TOKEN": self.token}
        return [f"export {name}={shlex.quote(value)}" for name, value in values.items() if value is not None]


# Ready to paste: no indentation, and the Python of this installation, which has pika.
_FIRST_REQUEST = f"""\
{shlex.quote(sys.executable)} - <<'EOF'
from datetime import timedelta
from os import environ
from scheduler.client import SchedulerClient, job_id
client = SchedulerClient(environ["AMQP_URL"])
client.schedule(job_id("my", 1), "my.first", {{"hello": "you"}}, run_at=timedelta(seconds=5))
EOF"""


class Screen:
    """Writes lines, in colour on a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._coloured = out.isatty()
        self.expected: set[str] = set()  # warnings that contain one of these are expected

    def say(self, text: str) -> None:
        """Show the current step."""
        self._line(self._styled(f"· {text}", "dim"))

    def complain(self, text: str) -> None:
        """Show a problem."""
        self._line(self._styled(f"! {text}", "red"))

    def warning(self, line: str, text: str) -> None:
        """Show a warning of a process, expected or not."""
        if any(name in line for name in self.expected):
            self.say(f"{text} (a sample that is expected to fail)")
        else:
            self.complain(text)

    def banner(self, addresses: Addresses) -> None:
        """Show the addresses, and a block to paste into a shell: variables, and a first request."""
        rows = [("Console", addresses.console)] if addresses.console else []
        rows += [("RabbitMQ", addresses.amqp_url), ("Postgres", addresses.database_url)]
        self._line("")
        self._line(self._styled("  The sidecar is up. Ctrl-C stops it.", "bold"))
        for name, value in rows:
            self._line(f"  {self._styled(f'{name:<9}', 'cyan')} {value}")
        if addresses.no_token is not None:
            self._line(f"  There is no TOKEN: {addresses.no_token}")
        self._line("  Paste this into another terminal; its event appears here five seconds later:")
        self._line("")
        for line in addresses.exports():
            self._line(line)  # without indentation and colour: it can be pasted
        self._line(self._styled(_FIRST_REQUEST, "dim"))
        self._line("")

    def sample(self, text: str) -> None:
        """Show a requested sample."""
        self._line(f"  {self._styled('requested', 'cyan')}  {text}")

    def due(self, event: dict[str, Any], milliseconds_late: float) -> None:
        """Show one ScheduleDue."""
        emitted = datetime.fromisoformat(event["emitted_at"]).strftime("%H:%M:%S.%f")[:-3]
        attempt = (event.get("run") or {}).get("attempt", 1)
        late = f"{milliseconds_late:6.1f} ms late" if attempt == 1 else f"attempt {attempt}"
        style = "green" if attempt > 1 or milliseconds_late < _LATE_MS else "yellow"
        payload = json.dumps(event["payload"], ensure_ascii=True)
        self._line(
            f"  {emitted}  {self._styled('due', 'green')}  {plain(event['job_type']):<22} "
            f"#{event['occurrence']:<4} {self._styled(late, style)}  {payload[:120]}"
        )

    def finished(self, event: dict[str, Any]) -> None:
        """Show a finished run."""
        at = datetime.fromisoformat(event["finished_at"]).strftime("%H:%M:%S.%f")[:-3]
        status, attempts = event["status"], event["attempts"]
        styled_status = self._styled(f"{status:<9}", "green" if status == "succeeded" else "yellow")
        self._line(f"  {at}  run  {plain(event['job_type']):<22} {styled_status} at attempt {attempts}"
                   + (f": {plain(event['error'])[:90]}" if event["error"] else ""))

    def summary(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table."""
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        self._line("")
        self._line(self._styled(f"  {title}", "bold"))
        self._line(self._styled("  " + "  ".join(map(str.ljust, header, widths)), "dim"))
        for row in rows:
            self._line(("  " + "  ".join(map(str.ljust, row, widths))).rstrip())

    def _styled(self, text: str, style: str) -> str:
        return styled(text, style, colour=self._coloured)

    def _line(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()
