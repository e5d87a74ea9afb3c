"""`scheduler top` against real processes."""

import os
import subprocess
import sys

from support import DEADLINE, iso, until, utc


def test_one_frame_when_piped(sidecar, host):
    sidecar.up()
    job = host.request(run_at=iso(utc(hours=1)), job_type="invoice.reminder")
    sidecar.stored(job)
    until(lambda: len(sidecar.sql("SELECT 1 FROM replicas")) == 2, "a heartbeat of both")
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", "top"], env=os.environ | sidecar.env, capture_output=True, text=True,
        timeout=DEADLINE, check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].endswith("on time")
    assert job in done.stdout
    assert "\x1b" not in done.stdout
    for process in sidecar.processes:
        assert str(process.popen.pid) in done.stdout
