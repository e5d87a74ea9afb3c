"""Compilers, interpreters and AMQP clients of other languages, for `make languages`."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support import DEADLINE

from scheduler.dev.servers import apt

GOPATH = "/usr/share/gocode"  # of Debian's packages
JARS = "/usr/share/java/amqp-client.jar:/usr/share/java/slf4j-api.jar:."
PACKAGES = {
    "php": {"php": "php-cli", "/usr/share/php/PhpAmqpLib": "php-amqplib"},
    "ruby": {"ruby": "ruby", "/usr/share/rubygems-integration/all/gems/bunny-*": "ruby-bunny"},
    "java": {"javac": "default-jdk-headless", "/usr/share/java/amqp-client.jar": "librabbitmq-client-java"},
    "go": {
        "go": "golang-go",
        f"{GOPATH}/src/github.com/rabbitmq/amqp091-go": "golang-github-rabbitmq-amqp091-go-dev",
    },
}


def missing(language: str) -> list[str]:
    """Return the packages to install; a wanted thing is a program or a pattern of paths."""
    def exists(wanted: str) -> object:
        return list(Path("/").glob(wanted[1:])) if wanted.startswith("/") else shutil.which(wanted)

    return [package for wanted, package in PACKAGES[language].items() if not exists(wanted)]


def install(language: str) -> None:
    """Install what is missing, or fail."""
    with (Path(tempfile.gettempdir()) / "scheduler-languages.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other test processes may install, too
        packages = missing(language)
        if packages:
            assert apt.can_install(), f"missing; Debian, Ubuntu: sudo apt-get install {' '.join(packages)}"
            apt.install(packages, print)
            assert missing(language) == []


def compile_with(place: Path, *command: str, **environment: str) -> None:
    """Run a compiler in a directory."""
    done = subprocess.run(command, cwd=place, env=os.environ | environment, capture_output=True, text=True,
                          check=False, timeout=5 * DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr
