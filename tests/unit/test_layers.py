"""Dependencies point one way: cli → processes → commands | emitting → postgres | rabbit → ops → domain.

There are no exceptions, and no room without a line in the table.
"""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import scheduler

PACKAGE = Path(scheduler.__file__).parent
BELOW = {
    "domain": set(),
    "resources": set(),
    "terminal": set(),
    "roles": {"domain"},
    "ops": {"domain"},
    "settings": {"domain"},
    "runtime": {"ops"},
    "postgres": {"domain", "ops", "resources"},
    "rabbit": {"domain", "ops"},
    "commands": {"domain", "ops", "postgres", "rabbit", "runtime", "settings"},
    "emitting": {"domain", "ops", "postgres", "rabbit"},
    "consumer": {"commands", "domain", "ops", "rabbit", "runtime", "settings"},
    "producer": {"domain", "emitting", "ops", "postgres", "rabbit", "runtime", "settings"},
    "preview": {"domain"},
    "views": {"domain", "postgres", "preview", "rabbit"},
    "api": {"commands", "domain", "ops", "postgres", "rabbit", "resources", "runtime", "settings", "views"},
    "maintenance": {"domain", "ops", "postgres", "roles", "runtime", "settings"},
    "workers": {"client", "domain", "ops", "rabbit", "runtime", "settings"},
    "client": {"domain", "rabbit", "resources"},
    "testing": {"client", "commands", "domain"},
    "migrating": {"domain", "ops", "postgres", "runtime"},
    "outbox": {"client", "ops", "postgres", "rabbit", "runtime", "settings"},
    "top": {"domain", "ops", "postgres", "runtime", "settings", "terminal"},
    "show_job": {"domain", "postgres", "settings", "terminal", "top"},
    "show_run": {"domain", "postgres", "terminal"},
    "operators": {"api", "commands", "domain", "postgres", "rabbit", "roles", "settings", "show_job", "show_run",
                  "terminal", "views"},
    "process": {"domain", "maintenance", "ops", "rabbit", "roles", "runtime", "settings"},
    "dev": {"api", "client", "domain", "postgres", "rabbit", "resources", "roles", "settings", "terminal"},
    "cli": {"api", "client", "dev", "domain", "migrating", "operators", "ops", "outbox", "postgres", "preview",
            "process", "roles", "runtime", "settings", "top", "workers"},
    "__main__": {"cli"},
}
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|COPY|CREATE|ALTER|DROP|PREPARE|EXECUTE|LISTEN|NOTIFY|BEGIN|COMMIT|"
    r"ROLLBACK|SET|TRUNCATE|WITH|LOCK)\b"
)


def files(room):
    return sorted((PACKAGE / room).rglob("*.py")) if (PACKAGE / room).is_dir() else [PACKAGE / f"{room}.py"]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_every_room_is_in_the_table_and_none_is_below_itself():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms == {*BELOW, "__init__"}
    tuple(TopologicalSorter(BELOW).static_order())  # raises CycleError


@pytest.mark.parametrize("room", BELOW)
def test_a_room_imports_only_what_lies_below_it(room):
    for path in files(room):
        for name in imports(path):
            if name.startswith("scheduler."):
                assert name.split(".")[1] in BELOW[room] | {room, "__version__"}, f"{path.name} imports {name}"


def test_the_package_does_not_import_the_tools_of_its_repository():
    for path in PACKAGE.rglob("*.py"):
        assert not [name for name in imports(path) if name.split(".")[0] == "tools"], path


def test_a_host_takes_of_the_rabbit_room_only_how_an_address_is_read():
    taken = {name for path in files("client") for name in imports(path) if name.startswith("scheduler.rabbit")}
    assert taken == {"scheduler.rabbit.address"}


@pytest.mark.parametrize(("library", "rooms"), [
    ("pika", {"rabbit", "client", "dev"}),
    ("psycopg2", {"postgres", "dev"}),
    ("prometheus_client", {"ops"}),
    ("opentelemetry", {"ops"}),
    ("aiohttp", {"workers"}),
    ("dateutil", set()),
])
def test_each_driver_stays_in_its_rooms(library, rooms):
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if any(name.split(".")[0] == library for name in imports(path)):
            assert room in rooms, f"{path.relative_to(PACKAGE)} imports {library}"


def test_statements_are_files():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not STATEMENT.match(node.value), f"{path.name}:{node.lineno}: {node.value!r}"


def test_every_statement_says_first_what_it_is_for():
    for path in (PACKAGE.parent / "sql").rglob("*.sql"):
        assert re.match(r"-- [A-Z].*", path.read_text()), path


def test_the_pure_part_reads_no_clock_and_no_environment():
    for path in (PACKAGE / "domain").rglob("*.py"):
        text = path.read_text()
        for forbidden in ("datetime.now(", "time.time(", "os.environ", "import os", "import random"):
            assert forbidden not in text, f"{path.name} has {forbidden}"
