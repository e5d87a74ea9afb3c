"""Dependencies point one way: cli → consumer | producer → postgres | rabbit | ops → domain."""

import ast
from pathlib import Path

import pytest

import scheduler

PACKAGE = Path(scheduler.__file__).parent
ALLOWED = {
    "domain": {"domain"},
    "ops": {"domain", "ops", "postgres", "resources", "settings", "runtime"},
    "postgres": {"domain", "ops", "postgres", "resources"},
    "rabbit": {"domain", "ops", "rabbit"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_lies_below_it(room):
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imports(path):
            if name.startswith("scheduler."):
                assert name.split(".")[1] in ALLOWED[room] | {"__version__"}, f"{path.name} imports {name}"


@pytest.mark.parametrize(("library", "rooms"), [
    ("pika", {"rabbit", "client", "dev", "answers.py", "flight.py"}),
    ("psycopg2", {"postgres", "dev"}),
    ("prometheus_client", {"ops"}),
    ("dateutil", set()),
])
def test_each_driver_stays_in_its_rooms(library, rooms):
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if any(name.split(".")[0] == library for name in imports(path)):
            assert room in rooms, f"{path.relative_to(PACKAGE)} imports {library}"


def test_the_pure_part_reads_no_clock_and_no_environment():
    for path in (PACKAGE / "domain").rglob("*.py"):
        text = path.read_text()
        for forbidden in ("datetime.now(", "time.time(", "os.environ", "import os", "import random"):
            assert forbidden not in text, f"{path.name} has {forbidden}"
