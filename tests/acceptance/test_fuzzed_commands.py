"""A consumer handles everything that a broker accepts: it stores or rejects a message, and delays no other."""

import json
from uuid import uuid4

from commands import EXAMPLES
from from_schema import broken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import DEADLINE

from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS

MODELS = {key: model.__name__ for key, model in (COMMAND_MODELS | RESULT_MODELS).items()}
TEXTS = st.text(max_size=30).filter(str.isprintable)
PROPERTIES = st.fixed_dictionaries({}, optional={
    "type": TEXTS | st.sampled_from(["ScheduleRequest", "request"]), "correlation_id": TEXTS,
    "headers": st.dictionaries(TEXTS | st.sampled_from(["traceparent", "tracestate"]),
                               st.none() | st.booleans() | st.integers(-5, 5) | TEXTS, max_size=3),
})


def test_fuzzed_messages_are_stored_or_rejected_and_hold_up_no_other(sidecar, host):
    consumer = sidecar.start("consumer")
    consumer.ready()
    sent = 0

    @settings(max_examples=min(EXAMPLES or 300, 2000), deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def publish(data):
        nonlocal sent
        key = data.draw(st.sampled_from(sorted(MODELS)))
        body = json.dumps(data.draw(broken(MODELS[key]))).encode()
        body = body[: data.draw(st.sampled_from([len(body), len(body), len(body) // 2]))]
        host.publish(key, body, **data.draw(PROPERTIES))
        sent += 1

    publish()
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    job, event = str(uuid4()), str(uuid4())
    host.publish("request", {"id": job, "job_type": "good", "run_at": "2099-01-01T00:00:00Z"}, reply_to=replies)
    assert json.loads(host.get(replies, 4 * DEADLINE)[2])["status"] == "scheduled"
    host.publish("result", {"event_id": event, "attempt": 1, "status": "running"}, reply_to=replies)
    assert json.loads(host.get(replies, 4 * DEADLINE)[2])["status"] == "recorded"
    # Unexpected ones are caught, rejected, and logged as an error; here there are none.
    assert [line for line in consumer.lines if line.get("level") == "error"] == []
    assert 0 < len(host.drain("scheduler_dead")) <= sent
