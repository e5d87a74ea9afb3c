"""The same small host in other languages: each is built and run against a real sidecar.

TypeScript is part of `make test`. The others need a toolchain, which `make languages` installs as root.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from language_support import GOPATH, JARS, PACKAGES, compile_with, install
from node_support import node, npm_install
from support import DEADLINE, Host, Sidecar, iso, until, utc

ROOT = Path(__file__).parents[2]
LANGUAGES = ROOT / "examples" / "languages"
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
