"""Runs the first session of docs/api.md."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from api_support import Api, start_api
from support import DEADLINE

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.fixture
def api(sidecar) -> Api:
    sidecar.start("producer").ready()
    return start_api(sidecar)


def test_the_first_session_creates_a_job_lists_its_runs_pauses_it_and_retries_a_dead_run(api):
    [lines] = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["sh", "-eux", "-c", lines], capture_output=True, text=True, check=False, timeout=5 * DEADLINE,
        env=os.environ | {"API_URL": api.url, "TOKEN": api.token},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    job = api.get("/jobs").json["items"][0]
    assert (job["status"], job["job_type"], job["created_by"]) == ("paused", "hello", "admin of all")
    actions = [item["action"] for item in api.get("/audit").json["items"]]
    assert actions == ["retry", "result", "pause", "request"]
