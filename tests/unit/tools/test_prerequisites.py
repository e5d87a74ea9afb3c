"""What `make test` says on a machine that lacks programs, as an ordinary user sees it."""

import shutil

import pytest

from tools import prerequisites


@pytest.fixture
def nothing_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # apt-get is missing, too
    return tmp_path


@pytest.mark.usefixtures("nothing_on_the_path")
@pytest.mark.parametrize(("arguments", "code"), [((), 1), (("tests/unit",), 0)])
def test_all_missing_packages_are_named_in_one_line(arguments, code, capsys):
    assert prerequisites.main(arguments) == code
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("Missing for all tests. Debian, Ubuntu: sudo apt-get install ")
    assert {"curl", "chromium", "prometheus", "openssl"} <= set(line.split())


def test_one_program_of_several_names_is_enough(nothing_on_the_path):
    before = set(prerequisites.missing())
    (nothing_on_the_path / "google-chrome").symlink_to(shutil.which("true", path="/usr/bin:/bin"))
    assert before - set(prerequisites.missing()) == {"chromium", "fonts-dejavu-core"}
