"""The documentation site: `make docs` runs MkDocs, which loads this module as a hook.

The pages link each other, and files of the repository, by relative paths. So the site is built from copies of all
pages and all linked files, in the same folders.
"""

import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "README.md"
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_SECTION = re.compile(r"^\*\*(.+)\*\*$")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Copy the pages and set the navigation."""
    source = Path(config["docs_dir"])
    shutil.rmtree(source, ignore_errors=True)
    for page in pages():
        for file in {page, *linked_files(page)}:
            copy = source / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    config["nav"] = navigation()
    return config


def pages() -> list[Path]:
    """Return the Markdown files of the site."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and images within the repository."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [markdown or html for markdown, html in _LINK.findall(text)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def linked_files(page: Path) -> list[Path]:
    """Return the files that a page links."""
    paths = [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
    return [path for path in paths if path.is_file()]


def navigation() -> list[Any]:
    """Return the sections of docs/README.md with the pages that each lists first in its lines."""
    sections: list[Any] = [{"Home": "README.md"}, {"All pages": "docs/README.md"}]
    shown = {ROOT / "README.md", INDEX}
    for line in INDEX.read_text(encoding="utf-8").splitlines():
        if heading := _SECTION.match(line):
            sections.append({heading[1]: []})
        for title, target in re.findall(r"\[([^]]+)\]\(([^)#\s]+\.md)\)", line):
            page = (INDEX.parent / target).resolve()
            if page not in shown:
                shown.add(page)
                [entries] = sections[-1].values()
                entries.append({title[0].upper() + title[1:]: str(page.relative_to(ROOT))})
    return [section for section in sections if all(section.values())]
