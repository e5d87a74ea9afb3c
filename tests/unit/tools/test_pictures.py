"""docs/recurrence/*.svg are what the planner gives today, and readable in light and dark themes."""

import xml.etree.ElementTree as ET

import pytest

from tools.pictures import FOLDER, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_a_committed_picture_is_what_the_script_draws(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PICTURES[name]().svg(), "run `make pictures`"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_and_both_themes(name):
    root = ET.fromstring((FOLDER / name).read_text(encoding="utf-8"))
    texts = {element.tag.partition("}")[2]: element.text for element in root.iter()}
    assert texts["title"]
    assert "prefers-color-scheme: dark" in texts["style"]


def test_the_page_shows_every_picture():
    page = (FOLDER.parent / "recurrence.md").read_text(encoding="utf-8")
    assert [name for name in PICTURES if f"(recurrence/{name})" not in page] == []
