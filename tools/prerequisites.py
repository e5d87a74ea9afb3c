"""What `make test` needs besides Python: installed as root on Debian or Ubuntu, otherwise named in one line."""

import os
import shutil
import sys
from collections.abc import Sequence

from scheduler.dev.servers import apt, containers, roots
from scheduler.dev.servers.binaries import find_postgres, find_rabbitmq
from tools import browser, prometheus

# Debian's packages and their programs, each with its possible names.
_PACKAGES: dict[str, list[tuple[str, ...]]] = {
    "bash": [("bash",)], "curl": [("curl",)], "git": [("git",)], "openssl": [("openssl",)],
    "chromium": [browser.NAMES], "fonts-dejavu-core": [browser.NAMES],
    "prometheus": [(program,) for program in prometheus.PROGRAMS],
    "prometheus-alertmanager": [prometheus.ALERTMANAGERS],
}


def missing() -> list[str]:
    """Return the Debian packages of what is missing on this machine."""
    return [*_servers(), *(
        package for package, programs in _PACKAGES.items()
        if not all(any(map(shutil.which, names)) for names in programs)
    )]


def main(arguments: Sequence[str]) -> int:
    """Make the machine ready. A part of the tests may not need all of it, so arguments make a gap no error."""
    roots.chosen(say=print)
    packages = missing()
    if packages and apt.can_install():
        apt.install(packages, print)
        packages = missing()
    if not packages:
        return 0
    apt_get = f"sudo apt-get install {' '.join(packages)}"
    print(f"Missing for all tests. Debian, Ubuntu: {apt_get}")  # noqa: T201 - `make test` shows it
    return 0 if arguments else 1


def _servers() -> list[str]:
    finders = {"postgresql": ("DATABASE_URL", find_postgres), "rabbitmq-server": ("AMQP_URL", find_rabbitmq)}
    packages = [
        package for package, (variable, find) in finders.items() if not os.environ.get(variable) and find() is None
    ]
    return [] if packages and containers.engine_answers() else packages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
