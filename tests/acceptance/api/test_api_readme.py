"""The README's lines for the API are run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from api_support import SECRET, Api, start_api
from support import DEADLINE

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture
def api(sidecar) -> Api:
    sidecar.start("producer").ready()
    return start_api(sidecar)


def test_a_newcomers_lines_make_a_job_watch_it_run_pause_it_and_replay_a_dead_run(api, tmp_path):
    [lines] = [block for block in re.findall(r"^```sh\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
               if ADDRESS in block]
    program = tmp_path / "scheduler"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m scheduler "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-eux", "-c", lines.replace(ADDRESS, api.url)], capture_output=True, text=True, check=False,
        env=os.environ | {"SCHEDULER_JWT_KEY": SECRET, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=Path(__file__).parents[3], timeout=5 * DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    job = api.get("/jobs").json["items"][0]
    assert (job["status"], job["job_type"], job["created_by"]) == ("paused", "hello", "me")
    actions = [each["action"] for each in api.get("/audit").json["items"]]
    assert actions == ["retry", "result", "pause", "request"]
