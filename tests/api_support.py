"""A user with a token, and the API as a real process."""

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from uuid import uuid4

import jwt
from support import DEADLINE, Process, Sidecar

from scheduler.api.console.session import COOKIE

SECRET = "a secret of at least thirty-two bytes, for tests"
ROLES = ("viewer", "operator", "admin")


def token(role: str | None = "admin", tenant: str | None = None, *, key: Any = SECRET, algorithm: str = "HS256",
          headers: dict[str, Any] | None = None, **claims: Any) -> str:
    made = {"sub": f"{role} of {tenant or 'all'}", "exp": int(time.time()) + 3600}
    made |= {} if role is None else {"role": role}
    made |= {} if tenant is None else {"tenant": tenant}
    made = {name: value for name, value in (made | claims).items() if value is not None}
    return jwt.encode(made, key, algorithm, headers)


BUSY = 503  # the API also returns it on an overloaded machine; callers retry


@dataclass
class Answer:
    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def errors(self) -> dict[str, str]:
        return {each["field"]: each["problem"] for each in self.json.get("errors", [])}


@dataclass
class Api:
    """The API at a URL, asked with one token."""

    url: str
    token: str | None = field(default_factory=token)
    patient: bool = True

    def as_(self, role: str | None = "admin", tenant: str | None = None, **claims: Any) -> "Api":
        return Api(self.url, token(role, tenant, **claims))

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None,
            **query: Any) -> Answer:
        if not path.startswith(("/api", "/health")):
            path = f"/api/v1{path}"
        asked = {name: value for name, value in query.items() if value is not None}
        url = self.url + path + (f"?{urllib.parse.urlencode(asked)}" if asked else "")
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = ({} if self.token is None else {"Authorization": f"Bearer {self.token}"}) | (headers or {})
        return self._answer(urllib.request.Request(url, data, given, method=method))

    def page(self, path: str) -> str:
        """Return a console page; it must exist."""
        found = self._answer(urllib.request.Request(self.url + path, headers={"Cookie": f"{COOKIE}={self.token}"}))
        assert found.status == 200, (path, found.body)
        return found.body.decode()

    def _answer(self, request: urllib.request.Request) -> Answer:
        deadline, pause = time.monotonic() + DEADLINE, threading.Event()
        while (found := _asked(request)).status == BUSY and self.patient and time.monotonic() < deadline:
            pause.wait(0.1)
        return found

    def get(self, path: str, **query: Any) -> Answer:
        return self.ask("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Answer:
        return self.ask("POST", path, body, **query)

    def job(self, **fields: Any) -> dict[str, Any]:
        """Create a job that runs in the distant future, unless the fields say otherwise."""
        made = {"id": str(uuid4()), "job_type": "test", "run_at": "2099-01-01T00:00:00Z"} | fields
        answer = self.post("/jobs", {name: value for name, value in made.items() if value is not None})
        assert answer.status == 201, answer.body
        return answer.json


def _asked(request: urllib.request.Request) -> Answer:
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as found:
            return Answer(found.status, found.headers, found.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def start_api(sidecar: Sidecar, *, ready: bool = True, **env: str) -> Api:
    """Start `scheduler api` next to the other processes."""
    settings = {"API_PORT": "0", "SCHEDULER_JWT_KEY": SECRET, "SCHEDULER_API_RATE": "1000000"}
    process = sidecar.start("api", **settings | env)
    if ready:
        process.ready()
    return Api(f"http://127.0.0.1:{api_port(process)}")


def api_port(process: Process) -> int:
    return int(process.logged("serving")["api_port"])

