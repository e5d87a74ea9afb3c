"""A sidecar with a console and a browser for each module of tests, and an admin who looks at it."""

import pytest
from console_support import a_browser, a_visit, a_world


@pytest.fixture(scope="module")
def world(stack, template):
    with a_world(stack, template) as made:
        yield made


@pytest.fixture(scope="module")
def browser():
    with a_browser() as started:
        yield started


@pytest.fixture
def visit(world, browser):
    with a_visit(browser, world, world.token("admin")) as made:
        yield made
