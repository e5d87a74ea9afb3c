"""Dependencies point one way: cli → processes → commands | emitting → postgres | rabbit → ops → domain.

There are no exceptions, and every package is in the table.
"""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import scheduler

PACKAGE = Path(scheduler.__file__).parent
# A dotted name is part of a package that others may use although they may not use the rest of it.
BELOW = {
    "domain": set(),
    "resources": set(),
    "cli.terminal": set(),
    "processes.roles": {"domain"},
    "ops": {"domain"},
    "settings": {"domain"},
    "processes.runtime": {"ops"},
    "postgres": {"domain", "ops", "resources"},
    "rabbit": {"domain", "ops"},
    "commands": {"domain", "ops", "postgres", "processes.runtime", "rabbit", "settings"},
    "emitting": {"domain", "ops", "postgres", "rabbit"},
    "views": {"domain", "postgres", "rabbit"},
    "api": {"commands", "domain", "ops", "postgres", "processes.runtime", "rabbit", "resources", "settings",
            "views"},
    "client": {"domain", "rabbit", "resources"},
    "workers": {"client", "domain", "ops", "processes.runtime", "rabbit", "settings"},
    "notifying": {"domain", "ops", "postgres", "processes.runtime", "settings", "workers"},
    "testing": {"client", "commands", "domain"},
    "processes": {"client", "commands", "domain", "emitting", "ops", "postgres", "processes.roles",
                  "processes.runtime", "rabbit", "settings"},
    "dev": {"api", "cli.terminal", "client", "domain", "postgres", "processes.roles", "rabbit", "resources",
            "settings"},
    "cli": {"api", "cli.terminal", "client", "commands", "dev", "domain", "ops", "postgres", "processes",
            "processes.roles", "processes.runtime", "rabbit", "settings", "views", "workers"},
    "__main__": {"cli"},
}
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|COPY|CREATE|ALTER|DROP|PREPARE|EXECUTE|LISTEN|NOTIFY|BEGIN|COMMIT|"
    r"ROLLBACK|SET|TRUNCATE|WITH|LOCK)\b"
)


def files(room):
    return [path for path in sorted(PACKAGE.rglob("*.py")) if room_of(module_of(path)) == room]


def module_of(path):
    return ".".join(("scheduler", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def room_of(module):
    """Return the longest name in the table that the module is or is part of."""
    name = module.removeprefix("scheduler.")
    while name not in BELOW and "." in name:
        name = name.rpartition(".")[0]
    return name


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_every_package_is_listed_and_acyclic():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms == {room for room in BELOW if "." not in room} | {"__init__"}
    assert all(files(room) for room in BELOW)
    tuple(TopologicalSorter(BELOW).static_order())  # raises CycleError


@pytest.mark.parametrize("room", BELOW)
def test_packages_import_only_lower_layers(room):
    for path in files(room):
        for name in imports(path):
            if name.startswith("scheduler."):
                assert room_of(name) in BELOW[room] | {room, "__version__"}, f"{path.name} imports {name}"


def part_of(module, packages):
    """Return the smallest part of the package that a module belongs to: its subpackage, or itself."""
    room = room_of(module)
    if "." in room:
        return room
    name = module.removeprefix("scheduler.")
    package = name if name in packages else name.rpartition(".")[0]
    has_subpackages = any(other.startswith(f"{package}.") for other in packages)
    return name if not package or (has_subpackages and name != package) else package


def test_no_two_modules_and_no_two_subpackages_import_each_other():
    """A package that has subpackages counts as its modules; what an import inside a function names counts too."""
    modules = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    packages = {name.removeprefix("scheduler.") for name, path in modules.items() if path.name == "__init__.py"}
    between_modules, between_parts = {}, {}
    for module, path in modules.items():
        named = {name if name in modules else name.rpartition(".")[0] for name in imports(path)} & modules.keys()
        between_modules[module] = named - {module, "scheduler"}
        for name in between_modules[module]:
            parts = part_of(module, packages), part_of(name, packages)
            if parts[0] != parts[1]:
                between_parts.setdefault(parts[0], set()).add(parts[1])
    tuple(TopologicalSorter(between_modules).static_order())  # raises CycleError
    tuple(TopologicalSorter(between_parts).static_order())


def test_the_package_does_not_import_the_tools_of_its_repository():
    for path in PACKAGE.rglob("*.py"):
        assert not [name for name in imports(path) if name.split(".")[0] == "tools"], path


def test_the_client_imports_only_rabbit_address():
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
def test_drivers_are_imported_only_in_their_packages(library, rooms):
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if any(name.split(".")[0] == library for name in imports(path)):
            assert room in rooms, f"{path.relative_to(PACKAGE)} imports {library}"


def test_statements_are_files():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not STATEMENT.match(node.value), f"{path.name}:{node.lineno}: {node.value!r}"


def test_every_statement_starts_with_a_comment():
    for path in (PACKAGE.parent / "sql").rglob("*.sql"):
        assert re.match(r"-- [A-Z].*", path.read_text()), path


def test_domain_reads_no_clock_and_no_environment():
    for path in (PACKAGE / "domain").rglob("*.py"):
        text = path.read_text()
        for forbidden in ("datetime.now(", "time.time(", "os.environ", "import os", "import random"):
            assert forbidden not in text, f"{path.name} has {forbidden}"
