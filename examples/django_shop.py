"""Django in one file: an invoice and its reminder are committed together, and reminded of exactly once.

    HOST_DATABASE_URL=postgresql://localhost/shop AMQP_URL=amqp://… python examples/django_shop.py

In a real project the tables come with a migration (`RunSQL(scheduler.client.tables())`), the relay is
`scheduler outbox`, and the runner a management command that calls `Runner(url).run_until_signal()`.
"""

import os
from datetime import timedelta
from urllib.parse import unquote, urlsplit

import django
import psycopg
from django.conf import settings

AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
DATABASE_URL = os.environ.get("HOST_DATABASE_URL", "postgresql://localhost/shop")

database = urlsplit(DATABASE_URL)
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": database.path.lstrip("/"), "HOST": database.hostname, "PORT": database.port or 5432,
    "USER": unquote(database.username or ""), "PASSWORD": unquote(database.password or ""),
}})
django.setup()

from django.db import close_old_connections, connection, models, transaction  # noqa: E402 - Django is set up above
from django.utils import timezone  # noqa: E402 - as above
from pydantic import BaseModel  # noqa: E402 - as above

from scheduler.client import Due, Outbox, Relay, Runner, job_id, on_due, once, tables  # noqa: E402 - as above


class Invoice(models.Model):
    """An invoice of the shop."""

    customer = models.CharField(max_length=100)
    reminders = models.IntegerField(default=0)

    class Meta:
        app_label = "shop"


class Reminder(BaseModel):
    """The payload of invoice.reminder."""

    invoice: int


def create_invoice(customer: str) -> Invoice:
    """Commit the invoice and its reminder together, or neither."""
    with transaction.atomic():
        invoice = Invoice.objects.create(customer=customer)
        Outbox(connection).schedule(
            job_id("invoice", invoice.pk), "invoice.reminder", Reminder(invoice=invoice.pk),
            run_at=timezone.now() + timedelta(seconds=2),
        )
    return invoice


@on_due("invoice.reminder", Reminder)
def remind(event: Due[Reminder]) -> None:
    """Count the reminder in the transaction that notes its event: a second delivery changes nothing."""
    with transaction.atomic():
        if once(connection, event.event_id):
            Invoice.objects.filter(pk=event.payload.invoice).update(reminders=models.F("reminders") + 1)
    close_old_connections()
    print(f"reminded of invoice {event.payload.invoice}, due at {event.due_at}")
    runner.stop()  # only because this is an example


with connection.cursor() as cursor:
    cursor.execute(tables())
with connection.schema_editor() as editor:
    editor.create_model(Invoice)

relay = Relay(lambda: psycopg.connect(DATABASE_URL), AMQP_URL).start()
runner = Runner(AMQP_URL, workers=1)
created = create_invoice("Ada")
print(f"created invoice {created.pk}")
runner.run()
relay.stop()
created.refresh_from_db()
print(f"invoice {created.pk} has {created.reminders} reminder")
