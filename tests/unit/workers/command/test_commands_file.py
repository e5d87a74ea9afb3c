"""The commands file is checked whole, and every mistake names its line."""

import math
import os
import pwd
import sys

import pytest

from scheduler.domain.errors import Misconfigured
from scheduler.workers.command.commands_file import environment_of, load

GOOD = f"""\
[nightly-report]
run = ["{sys.executable}", "-c", "pass"]   # a comment
arguments = true
directory = "/tmp"
environment = {{ REPORT_DB = "x=y z", EMPTY = "" }}
concurrency = 2
grace = 1.5
timeout = 90
memory = "512 MiB"
cpu_seconds = 60
open_files = 64
file_size = "1GiB"
tenants = ["acme", "other"]
argument_pattern = "[a-z-]+"
options = true

[tidy]
run = ["/bin/true"]
"""


def write(tmp_path, text):
    path = tmp_path / "commands.toml"
    path.write_text(text)
    return str(path)


def test_every_key_is_read_and_the_rest_has_defaults(tmp_path):
    commands = load(write(tmp_path, GOOD))
    report, tidy = commands["nightly-report"], commands["tidy"]
    assert report.run == (sys.executable, "-c", "pass")
    assert report.environment == {"REPORT_DB": "x=y z", "EMPTY": ""}
    assert (report.arguments, report.directory, report.concurrency, report.grace) == (True, "/tmp", 2, 1.5)
    assert report.limits == {"memory": 512 * 2**20, "cpu_seconds": 60, "open_files": 64, "file_size": 2**30}
    assert (tidy.arguments, tidy.directory, tidy.concurrency, tidy.grace) == (False, "/", 1, 10)
    assert (tidy.environment, tidy.limits, tidy.user) == ({}, {}, None)
    assert (report.timeout, tidy.timeout) == (90, math.inf)
    assert (report.tenants, report.argument_pattern, report.options) == ({"acme", "other"}, "[a-z-]+", True)
    assert (tidy.tenants, tidy.argument_pattern, tidy.options) == ({"default"}, None, False)


@pytest.mark.parametrize(("key", "says"), [
    ('shell = "yes"', "shell is unknown"),
    ('run = "/bin/true"', "list of strings"),
    ("run = []", "list of strings"),
    ('run = ["/bin/true", 1]', "list of strings"),
    ('run = ["true"]', "absolute path"),
    ('run = ["./true"]', "absolute path"),
    ('run = ["/bin/no-such-program"]', "does not exist"),
    ('run = ["/etc"]', "does not exist"),
    ('run = ["/etc/passwd"]', "is not executable"),
    ('run = ["/bin/true", "a\\u0000b"]', "NUL"),
    ('arguments = "yes"', "true or false"),
    ('directory = "tmp"', "absolute path"),
    ('directory = "/no/such/directory"', "not a directory"),
    ("directory = 7", "must be a string"),
    ('environment = "A=b"', "must be a table"),
    ("environment = { A = 1 }", "must be a string"),
    ('environment = { "A=B" = "c" }', "not a variable name"),
    ('environment = { SCHEDULER_ATTEMPT = "9" }', "the worker sets"),
    ("concurrency = 0", "whole number from 1"),
    ("concurrency = true", "whole number from 1"),
    ("concurrency = 1.5", "whole number from 1"),
    ("grace = -1", "must be seconds"),
    ("grace = nan", "must be seconds"),
    ('grace = "10"', "must be seconds"),
    ("timeout = 0", "must be seconds from 1 to 604,800"),
    ("timeout = 604801", "must be seconds from 1 to 604,800"),
    ("memory = 512", "must be a size"),
    ('memory = "512 MB"', "must be a size"),
    ('memory = "0 MiB"', "must be a size"),
    ("cpu_seconds = 0", "whole number from 1"),
    ("open_files = 2", "whole number from 3"),
    ('user = "no-such-user-here"', "not a user"),
    ('tenants = "acme"', "list of tenants"), ("tenants = []", "list of tenants"),
    ('tenants = ["a b"]', "is not a tenant"),
    ('argument_pattern = "("', "not a valid regular expression"), ("argument_pattern = 1", "must be a string"),
    (f'argument_pattern = "{"a" * 1001}"', "at most 1,000"), ("options = 1", "true or false"),
])
def test_a_mistake_names_its_line(tmp_path, key, says):
    own_run = "" if key.startswith("run") else 'run = ["/bin/true"]\n'
    path = write(tmp_path, f"# the fleet's\n[ok]\nrun = ['/bin/true']\n\n[bad]\n{key}\n{own_run}")
    with pytest.raises(Misconfigured) as error:
        load(path)
    assert f"{path}: line 6: bad: " in str(error.value)
    assert says in str(error.value)


@pytest.mark.parametrize(("text", "says"), [
    ("[a\n", "line 1"),
    ("[a]\nrun = ['/bin/true']\nrun = ['/bin/true']\n", "line 3"),
    ("", "no commands"),
    ("[a]\nconcurrency = 1\n", "line 1: a: run is missing"),
    ("\nfoo = 3\n", "line 2: foo: must be a table"),
    ("\n\n['a b']\nrun = ['/bin/true']\n", "a name has 1 to 100"),
    ("[a]\nrun = ['/bin/true']\n[a.environment]\nB = 1\n", "line 3: a: environment contains B"),
    ("[a]\nrun = ['/bin/true']\n[b]\nrun = ['x']\n[c]\ngrace = -1\nrun = ['y']\n",
     "absolute path, not 'x'; there is no shell; line 6: c: grace"),
])
def test_a_file_that_is_wrong_as_a_whole(tmp_path, text, says):
    with pytest.raises(Misconfigured) as error:
        load(write(tmp_path, text))
    assert says in str(error.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(Misconfigured, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="cannot be read"):
        load(str(tmp_path / "binary"))


def test_a_command_sees_what_the_file_lists_and_three_of_the_workers_own(tmp_path):
    command = load(write(tmp_path, GOOD))["nightly-report"]
    own = {"PATH": "/bin", "HOME": "/home/worker", "LANG": "C.UTF-8", "AMQP_URL": "amqp://u:p@h", "TERM": "vt"}
    assert dict(environment_of(command, own)) == {
        "PATH": "/bin", "HOME": "/home/worker", "LANG": "C.UTF-8", "REPORT_DB": "x=y z", "EMPTY": "",
    }


def test_a_command_of_another_user_has_that_users_home(tmp_path):
    me = pwd.getpwuid(os.geteuid())
    path = write(tmp_path, f'[a]\nrun = ["/bin/true"]\nuser = "{me.pw_name}"\n')
    assert dict(environment_of(load(path)["a"], {"HOME": "/worker"}))["HOME"] == me.pw_dir
