"""Workers of pools: a job with a pool is done only by workers that serve it."""

import json
import sys
from pathlib import Path

import pytest
from api_support import start_api
from endpoints import answer, endpoint, in_turn
from support import until, utc

OFFER = "[note]\nrun = {run}\narguments = true\n{more}\n"
NOTE = "import json, os, sys; print(json.dumps([os.environ['POOL'], *sys.argv[1:]]))"


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def worker(sidecar, tmp_path):
    sidecar.up()

    def start(pools=None, program=NOTE, more=""):
        path: Path = tmp_path / f"commands{len(sidecar.processes)}.toml"
        environment = f"environment = {{ POOL = {json.dumps(pools or 'unnamed')} }}\n"
        path.write_text(OFFER.format(run=json.dumps([sys.executable, "-c", program]), more=environment + more))
        env = {} if pools is None else {"SCHEDULER_WORKER_POOLS": pools}
        return sidecar.start("worker", SCHEDULER_COMMANDS_FILE=str(path), SCHEDULER_WEBHOOK_ALLOW="127.0.0.0/8",
                             **env).ready()

    return start


def ended(sidecar, job_id):
    return until(lambda: sidecar.sql("SELECT status::text, attempt, worker, output FROM run_history"
                                     " WHERE job_id = %s", job_id), f"a run of {job_id}")[0]


def name_of(sidecar, worker):
    [row] = until(lambda: sidecar.sql("SELECT host || ':' || pid AS name, offers FROM workers WHERE pid = %s",
                                      worker.popen.pid), "the worker's row")
    return row["name"], row["offers"]


def test_only_workers_of_its_pool_do_the_work_of_a_job(sidecar, host, worker, server):
    default = worker()
    at = utc().isoformat()
    failing_once = server.on("/gpu", in_turn(answer(500), answer(204)))
    called = host.request(run_at=at, target={"webhook": {"url": failing_once}, "pool": "gpu"},
                          run={"max_attempts": 3, "backoff": [0.1]})
    noted = host.request(run_at=at, target={"command": {"name": "note"}, "pool": "gpu"})
    plain = host.request(run_at=at, target={"webhook": {"url": server.url("/plain")}, "pool": "default"})
    noted_plain = host.request(run_at=at, target={"command": {"name": "note"}})
    default_name, offers = name_of(sidecar, default)
    assert offers == ["webhooks", "command.note"]
    for job_id in (plain, noted_plain):
        assert ended(sidecar, job_id)["worker"] == default_name

    def waits(job_id, problem):
        rows = sidecar.sql("SELECT status::text, last_problem FROM jobs WHERE id = %s", job_id)
        return [(row["status"], row["last_problem"]) for row in rows] == [("pending", problem)]

    until(lambda: waits(called, "returned: no worker of the pool gpu offers webhooks"), "a webhook that stays due")
    until(lambda: waits(noted, "returned: no worker of the pool gpu offers the command note"), "a due command")
    assert not server.calls("/gpu")
    gpu = worker("gpu")
    gpu_name, offers = name_of(sidecar, gpu)
    assert offers == ["webhooks.gpu", "command.note.gpu"]
    end = ended(sidecar, called)  # its retry stays in the pool
    assert (end["status"], end["attempt"], end["worker"]) == ("succeeded", 2, gpu_name)
    end = ended(sidecar, noted)
    assert (end["worker"], json.loads(end["output"]["stdout"])) == (gpu_name, ["gpu"])
    assert "command.note.gpu" in json.dumps(start_api(sidecar).get("/replicas").json)


def test_every_attempt_of_a_command_stays_in_its_pool(sidecar, host, worker):
    default, gpu = worker(), worker("gpu", program="raise SystemExit(1)")
    name_of(sidecar, default)
    job_id = host.request(run_at=utc().isoformat(), run={"max_attempts": 3, "backoff": [0.1]},
                          target={"command": {"name": "note"}, "pool": "gpu"})
    end = ended(sidecar, job_id)
    assert (end["status"], end["attempt"], end["worker"]) == ("dead", 3, name_of(sidecar, gpu)[0])


def test_the_pools_of_a_worker_share_the_concurrency_of_a_command(sidecar, host, worker, tmp_path):
    """With the default of 1, no two run at once, and every event of both pools is run."""
    lock = tmp_path / "lock"
    program = (f"import os, time; os.mkdir({str(lock)!r}); time.sleep(0.05); os.rmdir({str(lock)!r});"
               " print('alone')")
    worker("gpu,default", program=program)
    jobs = [host.request(run_at=utc().isoformat(), run={"max_attempts": 1},
                         target={"command": {"name": "note"}} | pool)
            for pool in [{}, {"pool": "gpu"}] * 6]
    for job_id in jobs:
        assert ended(sidecar, job_id)["status"] == "succeeded"
