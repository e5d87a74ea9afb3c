"""A private Prometheus for tests and screenshots, and promtool for `make lint`, installed if missing."""
# ruff: noqa: S603 - fixed programs of the system, with arguments of our own

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scheduler.dev.servers import apt
from scheduler.dev.servers.errors import ServerFailed
from scheduler.dev.servers.ledger import Ledger, default_base, exclusive
from scheduler.dev.servers.ports import LOOPBACK, free_ports
from scheduler.dev.servers.processes import SERVER_DEADLINE, ProcessIdentity, end, wait_until

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "prometheus" / "rules"
PROGRAMS = ("prometheus", "promtool")
_ADVICE = (
    "prometheus and promtool are not on this machine. Debian, Ubuntu: sudo apt-get install prometheus; Fedora: "
    "sudo dnf install golang-github-prometheus; macOS: brew install prometheus"
)
ALERTMANAGERS = ("prometheus-alertmanager", "alertmanager")  # Debian's name, and the project's


def ensure(say: apt.Say) -> None:
    """Install `prometheus` and `promtool` on Debian as root if they are missing. Raises ServerFailed."""
    _ensure("prometheus", lambda: all(map(shutil.which, PROGRAMS)), say, _ADVICE)


def ensure_alertmanager(say: apt.Say) -> str:
    """Install Alertmanager likewise, and return its program."""
    _ensure("prometheus-alertmanager", lambda: any(map(shutil.which, ALERTMANAGERS)), say,
            "alertmanager is not on this machine. Debian, Ubuntu: sudo apt-get install prometheus-alertmanager")
    return next(program for program in ALERTMANAGERS if shutil.which(program))


def _ensure(package: str, there: Callable[[], bool], say: apt.Say, advice: str) -> None:
    if there():
        return
    if not apt.can_install():
        raise ServerFailed(advice)
    base = default_base()
    with exclusive(base.with_name(f"{base.name}-installing")):
        if not there():
            apt.install([package], say)
    if not there():
        raise ServerFailed(advice)


def promtool(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool in prometheus/, because its files have relative paths."""
    command = ["promtool", *map(str, arguments)]
    where = ROOT / "prometheus"
    return subprocess.run(command, cwd=where, input=stdin, capture_output=True, text=True, check=False)


class Prometheus:
    """A server that scrapes every second and applies our rules as often."""

    def __init__(
        self, ledger: Ledger, jobs: Mapping[str, Sequence[str]], extra: Sequence[Any] = (),
        alertmanagers: Sequence[str] = (),
    ) -> None:
        """Start it on a free port; `jobs` has the targets of each scrape job."""
        ensure(lambda line: print(f"== {line}", file=sys.stderr, flush=True))  # noqa: T201 - `make lint` shows it
        [port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{port}"
        directory = ledger.directory / f"prometheus-{port}"
        directory.mkdir()
        scrapes = [{"job_name": job, "static_configs": [{"targets": list(to)}]} for job, to in jobs.items()]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in _faster(directory)],
            "scrape_configs": [*scrapes, *extra],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
        }
        file = directory / "prometheus.yml"
        file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        self._log = directory / "log"
        self._process = ledger.spawn(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}",
             f"--web.listen-address={LOOPBACK}:{port}", "--log.level=warn"],
            output=self._log,
        )
        if not wait_until(self._ready, SERVER_DEADLINE):
            raise ServerFailed(f"Prometheus did not start: {self._log.read_text(encoding='utf-8')[-2000:]}")

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the answer to an instant query."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        found: list[dict[str, Any]] = self._get("query", {"query": expression, **moment})["result"]
        return found

    def query_range(self, expression: str, since: float, until: float, step: float) -> list[dict[str, Any]]:
        """Return the answer to a range query."""
        span = {"start": f"{since:.3f}", "end": f"{until:.3f}", "step": f"{step:g}"}
        found: list[dict[str, Any]] = self._get("query_range", {"query": expression, **span})["result"]
        return found

    def wait(self, expression: str, seconds: float = SERVER_DEADLINE) -> list[dict[str, Any]]:
        """Wait until the expression has an answer, and return it."""
        limit = time.monotonic() + seconds
        while not (found := self.query(expression)):
            if time.monotonic() > limit:
                raise ServerFailed(f"not within {seconds:.0f} s: {expression}")
            time.sleep(0.2)
        return found

    def stop(self) -> None:
        """Stop it; its data go with the ledger's directory."""
        if self._process.poll() is None:
            end([ProcessIdentity.of(self._process.pid)], 15, 20)
        self._process.wait()

    def _ready(self) -> bool:
        return _responds(f"{self.url}/-/ready")

    def _get(self, what: str, parameters: Mapping[str, str]) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - loopback
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                problem = error.read().decode(errors="replace")
            raise ServerFailed(f"{parameters['query']}: {problem}") from None


class Alertmanager:
    """A server with our configuration, which sends at once and to a given URL."""

    def __init__(self, ledger: Ledger, receiver: str) -> None:
        """Start it on a free port."""
        program = ensure_alertmanager(lambda line: print(f"== {line}", file=sys.stderr, flush=True))  # noqa: T201 - for tests
        [port] = free_ports(1)
        self.address = f"{LOOPBACK}:{port}"
        directory = ledger.directory / f"alertmanager-{port}"
        directory.mkdir()
        text = (ROOT / "prometheus" / "alertmanager.yml").read_text(encoding="utf-8")
        # Debian's release has no `url_file`.
        text = re.sub(r"url_file: .*", f"url: {receiver}", text)
        text = re.sub(r"group_(wait|interval): .*", r"group_\1: 1s", text)
        file = directory / "alertmanager.yml"
        file.write_text(text, encoding="utf-8")
        self._log = directory / "log"
        self._process = ledger.spawn(
            [program, f"--config.file={file}", f"--storage.path={directory / 'data'}",
             f"--web.listen-address={self.address}", "--cluster.listen-address=", "--log.level=warn"],
            output=self._log,
        )
        if not wait_until(self._ready, SERVER_DEADLINE):
            raise ServerFailed(f"Alertmanager did not start: {self._log.read_text(encoding='utf-8')[-2000:]}")

    def stop(self) -> None:
        """Stop it."""
        if self._process.poll() is None:
            end([ProcessIdentity.of(self._process.pid)], 15, 20)
        self._process.wait()

    def _ready(self) -> bool:
        return _responds(f"http://{self.address}/-/ready")


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's own number
    except OSError:
        return False


def _faster(directory: Path) -> list[Path]:
    """Copy our rules so that they are evaluated as often as the server scrapes."""
    copies = []
    for path in sorted(RULES.glob("*.yml")):
        copy = directory / path.name
        text = path.read_text(encoding="utf-8").replace("interval: 15s", "interval: 1s")
        copy.write_text(text, encoding="utf-8")
        copies.append(copy)
    return copies


def check() -> int:
    """Check the configuration and test the rules, for `make lint`."""
    try:
        ensure(lambda line: print(f"== {line}", flush=True))  # noqa: T201 - `make lint` shows it
    except ServerFailed as error:
        print(f"prometheus/ not checked: {error}")  # noqa: T201 - `make lint` shows it
        return 0
    for arguments in (("check", "config", "prometheus.yml"), ("test", "rules", "tests/alerts_test.yml")):
        done = promtool(*arguments)
        if done.returncode:
            print(done.stdout, done.stderr, sep="")  # noqa: T201 - `make lint` shows it
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(check())
