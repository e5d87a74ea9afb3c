"""What `scheduler dev` shows: handsome on a terminal, plain when piped."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TextIO

from scheduler.cli.terminal import plain

_STYLES = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "cyan": "36", "red": "31"}
_LATE_MS = 100


class Screen:
    """Writes lines, in colour where there is somebody to see it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._coloured = out.isatty()
        self.meant: set[str] = set()  # a warning that names one of these is part of the show

    def say(self, text: str) -> None:
        """Tell what is being done now."""
        self._line(self._styled(f"· {text}", "dim"))

    def complain(self, text: str) -> None:
        """Tell what went wrong."""
        self._line(self._styled(f"! {text}", "red"))

    def warning(self, line: str, text: str) -> None:
        """Show a warning of a process, which was meant to come or not."""
        if any(each in line for each in self.meant):
            self.say(f"{text} (a sample is meant to fail)")
        else:
            self.complain(text)

    def banner(
        self, amqp_url: str, database_url: str, console: str | None, processes: Sequence[tuple[str, int]]
    ) -> None:
        """Show where everything is, and how to publish a first request of one's own."""
        rows = [("RabbitMQ", amqp_url), ("Postgres", database_url)]
        rows += [("Console", console)] if console else []
        rows += [(f"{role} metrics", f"http://127.0.0.1:{port}/metrics") for role, port in processes]
        self._line("")
        self._line(self._styled("  The sidecar is up.", "bold"))
        for name, value in rows:
            self._line(f"  {self._styled(f'{name:<17}', 'cyan')} {value}")
        self._line("")
        self._line("  Publish a request of your own from another terminal:")
        self._line(self._styled(_first_request(amqp_url), "dim"))
        self._line("")

    def sample(self, text: str) -> None:
        """Tell of a sample reminder."""
        self._line(f"  {self._styled('requested', 'cyan')}  {text}")

    def due(self, event: dict[str, Any], milliseconds_late: float) -> None:
        """Show one ScheduleDue."""
        emitted = datetime.fromisoformat(event["emitted_at"]).strftime("%H:%M:%S.%f")[:-3]
        late = f"{milliseconds_late:6.1f} ms late"
        style = "green" if milliseconds_late < _LATE_MS else "yellow"
        payload = json.dumps(event["payload"], ensure_ascii=True)
        self._line(
            f"  {emitted}  {self._styled('due', 'green')}  {plain(event['job_type']):<22} "
            f"#{event['occurrence']:<4} {self._styled(late, style)}  {payload[:120]}"
        )

    def finished(self, event: dict[str, Any]) -> None:
        """Show what became of the work of a job."""
        at = datetime.fromisoformat(event["finished_at"]).strftime("%H:%M:%S.%f")[:-3]
        status, tries = event["status"], event["attempts"]
        what = self._styled(f"{status:<9}", "green" if status == "succeeded" else "yellow")
        self._line(f"  {at}  run  {plain(event['job_type']):<22} {what} at attempt {tries}"
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
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._coloured else text

    def _line(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


def _first_request(amqp_url: str) -> str:
    """Return a command that can be pasted as it is: no indentation, our own Python, which has pika."""
    return f"""\
{sys.executable} - <<'EOF'
import json, uuid, pika, datetime as d
at = d.datetime.now(d.timezone.utc) + d.timedelta(seconds=5)
body = {{"id": str(uuid.uuid4()), "job_type": "my.first", "payload": {{"hello": "you"}}, "run_at": at.isoformat()}}
channel = pika.BlockingConnection(pika.URLParameters("{amqp_url}")).channel()
channel.basic_publish("schedule.commands", "request", json.dumps(body))
EOF"""
