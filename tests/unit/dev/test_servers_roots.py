"""Servers of another Debian suite: the choice, the mirror, the scripts. `make test SERVERS=sid` uses real ones."""

import subprocess

import pytest

from scheduler.dev.servers import roots
from scheduler.dev.servers.errors import ServerFailed


def test_without_the_variable_this_machines_servers_are_used():
    assert roots.chosen({}) is None
    assert roots.chosen({"SERVERS": ""}) is None


def test_an_unknown_suite_is_named_with_the_known_ones():
    with pytest.raises(ServerFailed, match="potato is unknown: expected one of bookworm, trixie, sid"):
        roots.chosen({"SERVERS": "potato"})


@pytest.mark.parametrize("text", [
    "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n",
    "Types: deb\nURIs: http://mirror.example/debian-security\n\nTypes: deb\nURIs: http://mirror.example/debian\n",
])
def test_the_mirror_is_apts_own(tmp_path, text):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(text)
    assert roots.mirror(tmp_path) == "http://mirror.example/debian"


def test_the_mirror_of_an_old_sources_list(tmp_path):
    text = "# comment\ndeb [arch=amd64] http://mirror.example/debian/ bookworm main\n"
    (tmp_path / "sources.list").write_text(text)
    assert roots.mirror(tmp_path) == "http://mirror.example/debian/"


def test_each_postgres_program_has_a_script_that_enters_the_root(tmp_path):
    root = tmp_path / "suite"
    folder = root / "usr/lib/postgresql/18/bin"
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).touch()
    roots._write_programs(root)
    programs = roots.postgres_programs(root)
    assert {path.name for path in programs.iterdir()} == {"initdb", "postgres"}
    assert f"{root} {folder / 'postgres'} \"$@\"" in (programs / "postgres").read_text()


def test_a_program_runs_inside_with_its_own_exit_code():
    """The machine's own root, entered as another one: mounts are private and gone afterwards."""
    before = subprocess.run(["mount"], capture_output=True, text=True, check=True).stdout
    done = subprocess.run([*roots.enter("/"), "/bin/sh", "-c", "echo $$; exit 7"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.strip().isdigit()
    assert subprocess.run(["mount"], capture_output=True, text=True, check=True).stdout == before
