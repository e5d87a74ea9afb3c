"""The same small host in other languages: each is built and run against a real sidecar.

TypeScript is part of `make test`. The others need a toolchain, which `make languages` installs as root.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from node_support import node, npm_install
from support import DEADLINE, Host, Sidecar, iso, until, utc

from scheduler.dev.servers import apt

ROOT = Path(__file__).parents[2]
LANGUAGES = ROOT / "examples" / "languages"
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


def missing(language):
    """Return the packages to install; a wanted thing is a program or a pattern of paths."""
    def exists(wanted):
        return list(Path("/").glob(wanted[1:])) if wanted.startswith("/") else shutil.which(wanted)

    return [package for wanted, package in PACKAGES[language].items() if not exists(wanted)]


def install(language):
    with (Path(tempfile.gettempdir()) / "scheduler-languages.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other test processes may install, too
        packages = missing(language)
        if packages:
            assert apt.can_install(), f"missing; Debian, Ubuntu: sudo apt-get install {' '.join(packages)}"
            apt.install(packages, print)
            assert missing(language) == []


@pytest.fixture(scope="module")
def running(stack, template):
    """One sidecar for all languages."""
    sidecar = Sidecar(stack.create_database(template=template), stack.create_vhost())
    yield sidecar.up()
    sidecar.close()


def build(language, folder):
    """Copy the example, with what it needs; return the command that runs it and its directory."""
    place = folder / "examples" / "languages" / language
    shutil.copytree(LANGUAGES / language, place, ignore=shutil.ignore_patterns("node_modules", "build"))
    if language == "typescript":
        (folder / "schemas").mkdir()
        shutil.copy(ROOT / "schemas" / "messages.d.ts", folder / "schemas")
        npm_install(place)
        compile_with(place, node(), "node_modules/typescript/bin/tsc")
        return [node(), "build/examples/languages/typescript/host.js"], place
    install(language)
    if language == "java":
        compile_with(place, "javac", "-cp", JARS, "-Xlint:all", "-Werror", "Host.java")
        return ["java", "-cp", JARS, "Host"], place
    if language == "go":
        settings = {"GO111MODULE": "off", "GOPATH": GOPATH, "GOFLAGS": "", "GOCACHE": str(folder / "cache")}
        compile_with(place, "go", "vet", **settings)
        compile_with(place, "go", "build", "-o", "host", **settings)
        return ["./host"], place
    return {"php": ["php", "host.php"], "ruby": ["ruby", "host.rb"]}[language], place


def compile_with(place, *command, **environment):
    done = subprocess.run(command, cwd=place, env=os.environ | environment, capture_output=True, text=True,
                          check=False, timeout=5 * DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("language", [
    "typescript", *(pytest.param(language, marks=pytest.mark.languages) for language in PACKAGES)
])
def test_a_host(running, tmp_path, language):
    command, place = build(language, tmp_path)
    host = Host(running.amqp_url)
    duplicate = {
        "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "invoice.reminder",
        "payload": {"invoice": 41}, "due_at": iso(utc()), "emitted_at": iso(utc()),
        "occurrence": 1, "missed": 0, "next_run_at": None,
    }
    for _ in range(2):
        host.publish("mainapp_due", duplicate, exchange="")
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=5 * DEADLINE,
                          env=os.environ | {"AMQP_URL": running.amqp_url})
    assert done.returncode == 0, done.stdout + done.stderr
    pattern = (r"requested (\S+)\ncancelled (\S+)\nreminded of invoice 41, due at 20\S+\n"
               r"skipped a duplicate of invoice 41\nreminded of invoice 42, due at 20\S+\nreported attempt 1\n")
    printed = re.fullmatch(pattern, done.stdout)
    assert printed, done.stdout + done.stderr
    ended = "SELECT status, worker FROM run_history WHERE job_id = %s"
    [run] = until(lambda: running.sql(ended, printed[1]), "the run's end")
    assert (run["status"], run["worker"]) == ("succeeded", f"{language}-1")
    running.stored(printed[2], "cancelled")
    assert host.drain("mainapp_due") == []
    host.close()
