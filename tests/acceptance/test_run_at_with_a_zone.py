"""A `run_at` that names its zone (RFC 9557): over AMQP, over HTTP and from the client."""

import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from api_support import start_api

from scheduler.client import CommandRejected
from scheduler.client.commands import request

RUN_AT = "2027-03-01T09:00:00-07:00[America/Vancouver]"
INSTANT = datetime(2027, 3, 1, 16, tzinfo=UTC)
CONTRADICTION = "2027-03-01T09:00:00-05:00[America/Vancouver]"


def test_a_zone_is_accepted_and_a_contradiction_is_rejected(host, sidecar):
    sidecar.up(producers=0)
    api = start_api(sidecar)
    job_id = host.request(run_at=RUN_AT)
    rejected = host.request(run_at=CONTRADICTION)
    stored = sidecar.stored(job_id)
    assert (stored["next_run_at"], stored["timezone"]) == (INSTANT, "America/Vancouver")
    dead = host.get("scheduler_dead")
    assert json.loads(dead[2])["id"] == rejected
    assert "which has -07:00" in dead[1].headers["x-rejected-reason"]

    body = {"job_type": "test.job", "run_at": RUN_AT}
    put = api.ask("PUT", f"/jobs/{uuid4()}", body)
    assert put.status in (200, 201), put.body
    assert datetime.fromisoformat(put.json["next_run_at"]) == INSTANT
    assert put.json["timezone"] == "America/Vancouver"
    for wrong in (body | {"run_at": CONTRADICTION}, body | {"timezone": "Europe/Berlin"}):
        refused = api.ask("PUT", f"/jobs/{uuid4()}", wrong)
        assert refused.status == 422, refused.body

    sent = request(job_id, "test.job", None, {"run_at": RUN_AT})
    assert sent.fields["run_at"] == RUN_AT
    with pytest.raises(CommandRejected, match="which has -07:00"):
        request(job_id, "test.job", None, {"run_at": CONTRADICTION})
