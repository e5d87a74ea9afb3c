"""The table of tested versions: cells, and runs that replace earlier ones."""

from pathlib import Path

from scheduler.dev.servers.binaries import RabbitBinaries
from tools import compatibility

SERVERS = ("4.3.6", "29.0.1", "18.6")


def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(f"# Versions\n\n{compatibility.BEGIN}\n{compatibility.END}\n\n## Next\n")
    return path


def test_a_run_replaces_an_earlier_one_of_the_same_versions_and_tests(tmp_path):
    path = page(tmp_path)
    for tests, outcomes, commit in (
        (["tests"], {"passed": 1200, "failed": 1, "error": 2, "skipped": 3}, "a1"),
        (["tests/unit"], {"passed": 5}, "a1"),
        (["tests"], {"passed": 1203}, "b2"),
    ):
        compatibility.record(compatibility.row(SERVERS, tests, outcomes, commit), path)
    text = path.read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [row.split(" | ")[5:9] for row in rows[2:]] == [
        ["`tests/unit`", "5", "0", "0"], ["`tests`", "1,203", "0", "0"],
    ]
    assert rows[3].endswith(", b2 |")
    assert text.endswith(f"{compatibility.END}\n\n## Next\n")


def test_failures_and_errors_are_counted_together():
    assert compatibility.row(SERVERS, ["tests"], {"passed": 1, "failed": 1, "error": 2}, "a1")[7] == "3"


def test_rows_are_sorted_by_version_not_by_text(tmp_path):
    path = page(tmp_path)
    for version in ("4.0.5", "3.10.8", "3.9.1"):
        compatibility.record(compatibility.row((version, "27", "17"), ["tests"], {}, "a1"), path)
    rows = [line.split(" | ")[0] for line in path.read_text().splitlines() if line.startswith("| ")]
    assert rows == ["| RabbitMQ", "| ---", "| 3.9.1", "| 3.10.8", "| 4.0.5"]


def test_versions_are_read_from_the_installed_files(tmp_path):
    scripts = tmp_path / "usr/lib/rabbitmq/lib/rabbitmq_server-4.3.6/sbin"
    epmd = tmp_path / "usr/lib/erlang/erts-17.0/bin/epmd"
    plugins, release = scripts.parent / "plugins", tmp_path / "usr/lib/erlang/releases/29"
    for folder in (scripts, plugins / "rabbit-4.3.6", plugins / "rabbit_common-4.3.6", epmd.parent, release):
        folder.mkdir(parents=True)
    (release / "OTP_VERSION").write_text("29.0.1\n")
    binaries = RabbitBinaries(scripts, epmd, None)
    assert compatibility._rabbitmq_version(binaries) == "4.3.6"
    assert compatibility._erlang_version(binaries) == "29.0.1"
