"""Large rows that fall due together do not take more memory than the Kubernetes manifest allows."""

import re
from pathlib import Path

import pytest
from support import connected, until

BASE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "base"
# Strings of 256 kB: one that cannot be compressed, and one that can.
RANDOM = "(SELECT string_agg(md5(n || '.' || m), '') FROM generate_series(1, 8000) AS m)"
ALIKE = "repeat('x', 256000)"


def limit(role):
    """Return the memory limit in the manifest, in kilobytes."""
    return 1024 * int(re.search(r"limits: \{memory: (\d+)Mi\}", (BASE / f"{role}.yaml").read_text())[1])


def peak(process):
    """Return the most kilobytes that a process ever had."""
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def execute(url, statement):
    with connected(url) as connection:
        connection.cursor().execute(statement)


@pytest.mark.parametrize("text", [RANDOM, ALIKE])
def test_large_jobs_that_are_due_together(sidecar, host, text):
    host.channel.queue_delete("mainapp_due")
    host.channel.queue_declare("few", arguments={"x-max-length": 10})  # the broker need not keep them
    host.channel.queue_bind("few", "schedule.events", "due")
    execute(sidecar.database_url, f"""
        INSERT INTO jobs (id, job_type, next_run_at, priority, payload)
        SELECT gen_random_uuid(), 'large', now() - n * interval '1 second',
               (ARRAY['high', NULL, 'low']::priority[])[1 + n % 3], json_build_object('text', {text})
        FROM generate_series(1, 700) AS n""")
    execute(sidecar.database_url, "UPDATE jobs SET payload = '{}' WHERE id IN (SELECT id FROM jobs LIMIT 100)")
    producer = sidecar.start("producer").ready()
    until(lambda: producer.metric("jobs_due_total") == 700, "all events", within=300)
    assert peak(producer) < limit("producer")


def test_large_runs_that_are_due_together(sidecar, host):
    finished = host.channel.queue_declare("few", arguments={"x-max-length": 10}).method.queue
    host.channel.queue_bind(finished, "schedule.events", "finished")
    output = f"json_build_object('text', {RANDOM.replace('8000', '2000')})"
    execute(sidecar.database_url, f"""
        WITH made AS MATERIALIZED (SELECT n, {output}::text AS output FROM generate_series(1, 200) AS n)
        INSERT INTO runs (event_id, status, attempt, counted, finished_at, wake_at, job_id, job_type, due_at,
                          origin, policy, event, output, attempts, emitted_at)
        SELECT gen_random_uuid(), 'succeeded', 10, 1, now(), now(), gen_random_uuid(), 'large', now(), 'schedule',
               '{{}}', '{{"event_id": "x"}}', output::json,
               (SELECT json_agg(json_build_object('attempt', a, 'outcome', 'failed', 'finished_at', now(),
                                                  'output', output)) FROM generate_series(1, 10) AS a),
               now()
        FROM made""")
    producer = sidecar.start("producer").ready()
    until(lambda: sidecar.sql("SELECT count(*) FROM run_history")[0]["count"] == 200, "all runs told", within=300)
    assert peak(producer) < limit("producer")
