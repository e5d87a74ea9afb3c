"""Sends the steps that go over the REST API or the command line, as people and scripts do."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib import error, request

from torture.fleet import Fleet
from torture.generator import Step

KEY = "torture-Zk3v9Qw7Lr5Xn1Bt8Hy2Md6Fc4Js0Pg"  # the check for guessable keys must accept it


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return taken.getsockname()[1]


class People:
    """Four clients at a time; each step's record gets the answer as if it were a reply."""

    def __init__(self, fleet: Fleet, database_url: str, port: int) -> None:
        self._fleet = fleet
        self._env = {"DATABASE_URL": database_url}
        self._base = f"http://127.0.0.1:{port}/api/v1"
        self._tokens: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(4)
        self._stop = threading.Event()

    def start(self, steps: list[tuple[float, Step, dict[str, Any], Any]]) -> None:
        for tenant in {step.get("as", "*") for _, step, _, _ in steps if step["via"] == "api"}:
            self._tokens[tenant] = self._token(tenant)
        threading.Thread(target=self._run, args=(steps,), name="people", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _token(self, tenant: str) -> str:
        more = [] if tenant == "*" else ["--tenant", tenant]
        code, output = self._fleet.run(["token", "--role", "admin", "--sub", "torture", *more], {"SCHEDULER_JWT_KEY": KEY})
        if code:
            raise RuntimeError(f"no token: {output}")
        return output.strip()

    def _run(self, steps: list[tuple[float, Step, dict[str, Any], Any]]) -> None:
        for when, step, record, body in steps:
            if self._stop.wait(max(0.0, when - time.time())):
                return
            self._pool.submit(self._do, step, record, body)

    def _do(self, step: Step, record: dict[str, Any], body: Any) -> None:
        content = body()
        record["first"] = time.time()
        accepted, answer = self._ask_api(step, content) if step["via"] == "api" else self._ask_cli(step)
        if accepted is not None:
            record["confirmed"] = record["answered"] = time.time()
            record["publishes"] = 1
            record["rejected"] = not accepted
            record["reply"] = {"t": time.time(), "body": answer}
        else:
            record["gave_up"] = answer

    def _ask_api(self, step: Step, content: dict[str, Any]) -> tuple[bool | None, Any]:
        job = step["job"]
        method, path = {"request": ("PUT", f"/jobs/{job}"), "cancel": ("DELETE", f"/jobs/{job}")}.get(
            step["do"], ("POST", f"/jobs/{job}/{step['do']}"))
        data = json.dumps({k: v for k, v in content.items() if k != "id"}).encode() if method == "PUT" else None
        asked = request.Request(self._base + path, method=method, data=data, headers={
            "Authorization": f"Bearer {self._tokens[step.get('as', '*')]}", "Content-Type": "application/json"})
        try:
            with request.urlopen(asked, timeout=30) as answer:
                return True, answer.status
        except error.HTTPError as problem:
            with problem:
                text = problem.read().decode(errors="replace")[:300]
            return (False, f"{problem.code} {text}") if problem.code < 500 and problem.code != 429 else (None, problem.code)
        except OSError as problem:
            return None, str(problem)

    def _ask_cli(self, step: Step) -> tuple[bool | None, Any]:
        code, output = self._fleet.run(["job", step["do"], step["job"], *(["--yes"] if step["do"] == "cancel" else [])], self._env)
        return {0: True, 1: False}.get(code), output[:300]
