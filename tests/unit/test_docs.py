"""README.md and docs/: size, index, links and settings."""

import re
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest

from scheduler.settings import Settings
from tools.docs_site import links, navigation, pages

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "scheduler"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_has_at_most_10_kb():
    assert len((ROOT / "README.md").read_bytes()) <= 10_000


def test_the_index_links_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert {page.relative_to(ROOT) for page in (ROOT / "docs").rglob("*.md")} - {
        page.relative_to(ROOT) for page in linked | {index}
    } == set()


def test_the_site_shows_every_page_of_the_index_once():
    shown = [path for section in navigation() for entries in section.values() if isinstance(entries, list)
             for entry in entries for path in entry.values()]
    assert len(shown) == len(set(shown))
    assert {"docs/messages.md", "CHANGELOG.md", "docs/decisions/0001-recurrence-engine.md"} <= set(shown)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page):
    missing = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append(target)
    assert missing == []


def test_blocks_in_python_are_complete_programs(tmp_path):
    """A part of a program is marked `py`, except lines that a guide appends to a file."""
    block = re.compile(r"^ *```python\n(?!# .* \(at the end\))(.*?)^ *```$", re.DOTALL | re.MULTILINE)
    for page in pages():
        for number, code in enumerate(block.findall(page.read_text(encoding="utf-8"))):
            (tmp_path / f"{page.stem}_{number}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    ruff = [Path(sys.executable).parent / "ruff", "check", "--isolated", "--select=F821", "--quiet", tmp_path]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_settings_page_lists_every_setting():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`([A-Z_]+)`", cell)} == {
        field.metadata["name"] for field in fields(Settings)
    }


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_named_modules_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|html|sql|sh))?)`", text)
    elsewhere = [path.rstrip("/") for path in paths if not (ROOT / path).exists()]
    assert [path for path in elsewhere if not list(PACKAGE.rglob(path))] == []


def test_the_modules_in_the_architecture_table_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = "".join(line for line in text.splitlines() if line.startswith("| `"))
    modules = {path.stem for path in PACKAGE.rglob("*") if path.is_dir() or path.suffix == ".py"}
    assert set(re.findall(r"`([a-z_]+)`", rows)) - modules - {"scheduler_dead"} == set()


def test_the_tests_named_in_the_security_page_exist():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("\n## Tests\n")[2]
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []
