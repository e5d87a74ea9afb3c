"""Runs the snippets of docs/host.md in order, as one program, against the real sidecar."""

import re
import sys
import threading
import types
from pathlib import Path

import psycopg
import pytest
from support import DEADLINE, until

import scheduler.client
from scheduler.client import Handlers

PAGE = (Path(__file__).parents[2] / "docs" / "host.md").read_text(encoding="utf-8")


def snippets(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def page(sidecar, amqp_url, empty_database, monkeypatch):
    """Run the page's Python code in one namespace, with separate handlers."""
    handlers = Handlers()
    monkeypatch.setattr("scheduler.client.client.REPLY_SECONDS", DEADLINE)
    monkeypatch.setattr(scheduler.client, "on_due", handlers.on_due)
    monkeypatch.setattr(scheduler.client.Runner.__init__, "__kwdefaults__",
                        scheduler.client.Runner.__init__.__kwdefaults__ | {"handlers": handlers})
    # Signals are for the main thread of a process, and the page's runner would never return.
    monkeypatch.setattr(scheduler.client.Runner, "run_until_signal", _in_a_thread)
    sidecar.up()
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.setenv("AMQP_URL", amqp_url)
    monkeypatch.setenv("HOST_DATABASE_URL", empty_database)
    yield module
    for name in ("runner", "relay", "client"):
        if hasattr(module, name):
            getattr(module, name).close() if name == "client" else getattr(module, name).stop()
    for thread in _THREADS:
        thread.join()


_THREADS = []


def _in_a_thread(runner):
    thread = threading.Thread(target=runner.run)
    _THREADS.append(thread)
    thread.start()


def test_every_snippet_works(page, sidecar, capsys, scheduler_sidecar):
    for code in snippets("py(?:thon)?"):
        exec(compile(code, "docs/host.md", "exec"), page.__dict__)
    printed = []

    def said(line):
        printed.extend(capsys.readouterr().out.splitlines())
        return line in printed

    assert said("rrule")
    assert said("scheduled")
    until(lambda: said("invoice 42 is due"), "the first reminder")
    until(lambda: said("invoice 42 was sent at attempt 2"), "the postponed event")
    until(lambda: sidecar.sql("SELECT 1 FROM run_history WHERE status = 'succeeded'"), "the run's end")
    with psycopg.connect(page.HOST_DATABASE_URL) as database:
        until(lambda: database.execute("SELECT reminders FROM invoices WHERE id = 7").fetchone() == (1,),
              "the reminder that went through outbox and inbox")
        for statement in snippets("sql"):
            database.execute(statement)
            database.commit()
            sidecar.stored(re.search(r'"id": "(.*?)"', statement)[1])
    page.test_an_unpaid_invoice_gets_weekly_reminders()
    page.test_a_failed_mail_is_retried()
    page.test_downtime_folds_missed_reports_into_one(scheduler_sidecar)
