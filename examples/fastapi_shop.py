"""FastAPI with SQLAlchemy: the relay and the handlers run in threads of the application.

    HOST_DATABASE_URL=postgresql://localhost/shop AMQP_URL=amqp://… uvicorn --app-dir examples fastapi_shop:app
    curl -X POST 'localhost:8000/invoices?customer=Ada'; sleep 3; curl localhost:8000/invoices/1

`python examples/fastapi_shop.py` does all of that automatically and exits.
"""

import json
import os
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI

from scheduler.client import Due, Handlers, Outbox, Relay, Runner, job_id, once, tables

AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
DATABASE_URL = os.environ.get("HOST_DATABASE_URL", "postgresql://localhost/shop")

engine = sa.create_engine(DATABASE_URL.replace("postgresql://", "postgresql+psycopg://", 1))
invoices = sa.Table(
    "invoices", sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("customer", sa.Text),
    sa.Column("reminders", sa.Integer, server_default="0"),
)
handlers = Handlers()


@handlers.on_due("invoice.reminder")
def remind(event: Due) -> None:
    """Count the reminder in the transaction that notes its event: a second delivery changes nothing."""
    with engine.begin() as database:
        if once(database, event.event_id):
            chosen = invoices.c.id == event.payload["invoice"]
            database.execute(invoices.update().where(chosen).values(reminders=invoices.c.reminders + 1))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Run the relay and the handlers as long as the application runs."""
    with engine.begin() as database:  # in a real project: a migration
        database.exec_driver_sql(tables())
        invoices.create(database, checkfirst=True)
    relay = Relay(lambda: psycopg.connect(DATABASE_URL), AMQP_URL).start()
    runner = Runner(AMQP_URL, handlers=handlers)
    thread = threading.Thread(target=runner.run)
    thread.start()
    yield
    runner.stop()
    thread.join()
    relay.stop()


app = FastAPI(lifespan=lifespan)


@app.post("/invoices")
def create(customer: str) -> dict[str, int]:
    """Commit the invoice and its reminder together, or neither."""
    with engine.begin() as database:
        new = invoices.insert().values(customer=customer).returning(invoices.c.id)
        number = database.execute(new).scalar_one()
        Outbox(database).schedule(
            job_id("invoice", number), "invoice.reminder", {"invoice": number},
            run_at=timedelta(seconds=2),
        )
    return {"invoice": number}


@app.get("/invoices/{number}")
def read(number: int) -> dict[str, object]:
    """Show an invoice."""
    with engine.begin() as database:
        return dict(database.execute(invoices.select().where(invoices.c.id == number)).mappings().one())


def demonstrate() -> None:
    """Start the server, create an invoice and wait for its reminder."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    host, port = server.servers[0].sockets[0].getsockname()
    request = urllib.request.Request(f"http://{host}:{port}/invoices?customer=Ada", method="POST")
    with urllib.request.urlopen(request) as answer:
        number = json.load(answer)["invoice"]
    print(f"created invoice {number}")
    for _ in range(1200):
        with urllib.request.urlopen(f"http://{host}:{port}/invoices/{number}") as answer:
            if json.load(answer)["reminders"]:
                print(f"reminded of invoice {number}")
                break
        time.sleep(0.1)
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    demonstrate()
