"""The client is for hosts: it must not drag in the server, nor anything that only the server needs."""

import subprocess
import sys

ALLOWED = ("scheduler.client", "scheduler.domain", "scheduler.resources")
URL = {"scheduler.rabbit", "scheduler.rabbit.address"}  # hosts and sidecars parse an AMQP_URL in the same way
PROBE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("psycopg2", "psycopg", "prometheus_client", "sqlalchemy", "django"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
import scheduler.client
print(*sorted(name for name in sys.modules if name.startswith("scheduler.")))
"""


def test_the_client_imports_neither_the_server_nor_a_database_driver():
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, timeout=300
    )
    assert probe.returncode == 0, probe.stderr
    foreign = [name for name in probe.stdout.split() if not name.startswith(ALLOWED) and name not in URL]
    assert foreign == []
