"""Handlers of modules: import, errors and `--list`."""

import sys

import pytest

from scheduler.client.handlers import Handlers
from scheduler.domain.errors import Misconfigured
from scheduler.workers import handler_worker

SHOP = '''
from pydantic import BaseModel
from scheduler.client import on_due

class Invoice(BaseModel):
    number: int
    customer: str | None = None

@on_due("invoice.reminder", Invoice)
def remind(due):
    """Send the reminder.

    Twice does no harm.
    """

@on_due("plain")
def plain(due):
    pass
'''
OTHER = '''
from scheduler.client.handlers import Handlers
own = Handlers()

@own.on_due("other", list[int])
def other(due):
    """Do the other thing."""
'''


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Write modules into the current folder, with a separate registry."""
    mine = Handlers()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(handler_worker, "registered_handlers", mine)
    monkeypatch.setattr("scheduler.client.on_due", mine.on_due)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_several_modules_are_served_and_listed(modules):
    modules(shop_handlers=SHOP, other_handlers=OTHER)
    served = handler_worker.load_handlers(["shop_handlers", "other_handlers"])
    assert list(handler_worker.describe_handlers(served)) == [
        "invoice.reminder  shop_handlers.remind",
        "    payload: Invoice(number: int, customer: str | None = …)",
        "    Send the reminder.",
        "",
        "    Twice does no harm.",
        "other  other_handlers.other",
        "    payload: list[int]",
        "    Do the other thing.",
        "plain  shop_handlers.plain",
        "    payload: dict[str, typing.Any]",
    ]


@pytest.mark.parametrize(("text", "says"), [
    ("1/0", "ZeroDivisionError during import"),
    ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
    ("x = 1", "no handlers"),
    (SHOP + OTHER.replace('"other"', '"plain"'), "'plain' already has a handler"),
])
def test_an_unusable_module_is_reported(modules, text, says):
    modules(broken_handlers=text)
    with pytest.raises(Misconfigured, match="--handlers broken_handlers: ") as error:
        handler_worker.load_handlers(["broken_handlers"])
    assert says in str(error.value)


def test_a_module_that_is_not_there(modules):
    modules()
    with pytest.raises(Misconfigured, match="module not found"):
        handler_worker.load_handlers(["nowhere.at_all"])
