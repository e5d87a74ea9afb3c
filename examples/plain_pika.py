"""Plain pika, without our client: request a reminder in two seconds, and consume it.

    AMQP_URL=amqp://guest:guest@localhost:5672/%2F python examples/plain_pika.py
"""

import json
import os
import uuid
from datetime import UTC, datetime, timedelta

import pika

connection = pika.BlockingConnection(
    pika.URLParameters(os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F"))
)
channel = connection.channel()
channel.confirm_delivery()  # basic_publish now returns once the broker has the message, or raises

job = str(uuid.uuid4())
now = datetime.now(UTC)
channel.basic_publish(
    "schedule.commands",
    "request",
    json.dumps({
        "id": job,
        "job_type": "invoice.reminder",
        "payload": {"invoice": 42},
        "run_at": (now + timedelta(seconds=2)).isoformat(timespec="microseconds"),
        "issued_at": now.isoformat(timespec="microseconds"),  # the latest command for a job wins
    }).encode(),
    pika.BasicProperties(content_type="application/json", delivery_mode=2),
    mandatory=True,  # without a sidecar this raises UnroutableError instead of vanishing
)
print(f"requested {job}")

for method, _, body in channel.consume("mainapp_due", inactivity_timeout=30):
    if method is None:
        raise SystemExit("no reminder arrived within 30 seconds: does `scheduler producer` run?")
    event = json.loads(body)
    # Handle it here. The same event_id may come twice: skip it then.
    channel.basic_ack(method.delivery_tag)
    print(f"reminded of invoice {event['payload']['invoice']}, due at {event['due_at']}")
    if event["job_id"] == job:
        break
connection.close()
