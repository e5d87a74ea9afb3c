"""Run examples against a private sidecar with its servers and processes, from a clean clone.

    make example                        # all of them
    make example ARGS="plain_pika.py"   # or some
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from scheduler.dev.servers import start_stack
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology

HERE = Path(__file__).parent
ALL = ("plain_pika.py", "raw_amqp.py", "django_shop.py", "fastapi_shop.py", "node", "fleet")


def main(names: list[str]) -> int:
    """Run the examples one after the other and return how many failed."""
    with ExitStack() as stack:
        servers = stack.enter_context(start_stack(say=print, purpose="example"))
        database_url, amqp_url = servers.create_database(), servers.create_vhost()
        migrate(database_url)
        topology.declare(amqp_url, queue_type="quorum", due_queue_type="default")
        env = os.environ | {
            "DATABASE_URL": database_url, "AMQP_URL": amqp_url, "METRICS_HOST": "127.0.0.1",
            "METRICS_PORT": "0", "LOG_LEVEL": "warning",
        }
        for role in ("consumer", "producer"):
            process = subprocess.Popen([sys.executable, "-m", "scheduler", role], env=env)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            servers.adopt(process.pid)
        failed = 0
        for name in names:
            print(f"\n== {name}", flush=True)
            failed += run(name, env | {"HOST_DATABASE_URL": servers.create_database()}) != 0
        return failed


def run(name: str, env: dict[str, str]) -> int:
    """Run one example and return its exit code."""
    if name == "fleet":
        return subprocess.call([sys.executable, str(HERE / "fleet" / "fleet.py")], env=env)
    if name != "node":
        return subprocess.call([sys.executable, str(HERE / name)], env=env)
    if not shutil.which("npm"):
        print("skipped: Node.js with npm is not installed")
        return 0
    subprocess.check_call(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"],
                          cwd=HERE / "node")
    return subprocess.call(["node", "index.js"], cwd=HERE / "node", env=env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(ALL)))
