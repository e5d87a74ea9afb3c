"""The guides in docs/guides/ work as they are: each is followed in an empty directory, with a real sidecar."""

import re
import tomllib
from urllib.parse import unquote, urlsplit

import jwt
import psycopg
import pytest
from guide_support import celery_packages, guide
from support import Sidecar, until

FEW_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of our own tests take seconds to start


@pytest.fixture(scope="module")
def running(stack, template):
    """One sidecar for all guides."""
    sidecar = Sidecar(stack.create_database(template=template), stack.create_vhost())
    yield sidecar.up()
    sidecar.close()


@pytest.fixture(scope="module")
def celery():
    """The folder with Celery."""
    return str(celery_packages())


@pytest.fixture
def own_database(empty_database):
    """The host's database, as libpq's variables."""
    place = urlsplit(empty_database)
    return {
        "PGHOST": place.hostname, "PGPORT": str(place.port), "PGDATABASE": place.path.lstrip("/"),
        "PGUSER": unquote(place.username or ""), "PGPASSWORD": unquote(place.password or ""),
        "HOST_DATABASE_URL": empty_database,
    }


def test_django(running, own_database, tmp_path):
    with guide("django.md", tmp_path, AMQP_URL=running.amqp_url, **own_database) as page:
        printed = page.follow()
        assert "Ran 3 tests" in printed
        assert "OK" in printed
        until(lambda: page.read("reminders.log").count("reminded of invoice") == 199, "the reminders")
    with psycopg.connect(own_database["HOST_DATABASE_URL"]) as shop:
        counted = shop.execute("SELECT id, reminders FROM invoices_invoice WHERE reminders <> 1").fetchall()
        assert counted == [(1, 0)]
    assert running.sql("SELECT payload FROM jobs WHERE status = 'cancelled'") == [{"payload": {"invoice": 1}}]


def test_fastapi(running, own_database, tmp_path):
    with guide("fastapi.md", tmp_path, AMQP_URL=running.amqp_url, **own_database, **FEW_PLUGINS) as page:
        printed = page.follow()
        assert '{"invoice":1}' in printed
        assert "2 passed" in printed
        with psycopg.connect(own_database["HOST_DATABASE_URL"], autocommit=True) as shop:
            count = "SELECT reminders FROM invoices WHERE id = 1"
            until(lambda: shop.execute(count).fetchone() == (1,), "the reminder")


def test_celery_beside_it(running, celery, tmp_path):
    with guide("celery.md", tmp_path, AMQP_URL=running.amqp_url, PYTHONPATH=celery) as page:
        page.follow()
        until(lambda: "reminder for invoice 42 sent" in page.read("celery.log"), "the task")


def test_coming_from_celery_beat(running, celery, tmp_path):
    with guide("from-celery-beat.md", tmp_path, AMQP_URL=running.amqp_url, PYTHONPATH=celery) as page:
        printed = page.follow()
        assert re.search(r"^weekly report: next run at 20\S+ 0[67]:30:00", printed, re.MULTILINE)
        assert len(re.findall("next run at", printed)) == 3
        removed = "removed what is older than 1 days"
        until(lambda: page.read("celery.log").count(removed) > 1, "two runs of the task")
    [job] = running.sql("SELECT cron, timezone, on_missed::text FROM jobs WHERE name = 'weekly report'")
    assert tuple(job.values()) == ("30 8 * * mon", "Europe/Berlin", "skip")


def test_upgrade(running, tmp_path):
    settings = {"DATABASE_URL": running.database_url, "AMQP_URL": running.amqp_url}
    with guide("upgrade.md", tmp_path, **settings) as page:
        printed = page.follow()
        assert "0001" in printed
        assert "scheduler_dead is empty." in printed


def test_rotating_secrets(tmp_path):
    secrets, key = tmp_path / "webhooks.toml", tmp_path / "jwt_key"
    first = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    secrets.write_text(f'other = "unchanged"\nshop = "{first}"\n')
    key.write_text("the old secret, which has at least thirty-two bytes")
    settings = {"SCHEDULER_WEBHOOK_SECRETS_FILE": str(secrets), "SCHEDULER_JWT_KEY_FILE": str(key)}
    values = []
    with guide("rotate-secrets.md", tmp_path, **settings) as page:
        printed = page.follow(after=lambda _: values.append(tomllib.loads(secrets.read_text())))
    new = values[0]["shop"][0]
    assert [value["shop"] for value in values] == [[new, first], new, new]
    assert new.startswith("whsec_")
    assert values[-1]["other"] == "unchanged"
    assert jwt.decode(printed.strip(), key.read_text().strip(), algorithms=["HS256"])["role"] == "admin"
