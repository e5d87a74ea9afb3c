"""A class name means one thing in the whole package, so that a search finds one class."""

import ast
from collections import defaultdict
from pathlib import Path

import scheduler

PACKAGE = Path(scheduler.__file__).parent


def test_every_class_name_is_used_once():
    modules = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
