"""Run a handler in a child process, which can be terminated."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from scheduler.client.event_loop import HandlerTimedOut
from scheduler.client.handlers import Handler, function_name, module_name
from scheduler.client.results import GiveUp, NotJson, Snooze
from scheduler.client.work import StopReason

KILL_SECONDS = 10.0  # between SIGTERM and SIGKILL, and for a child to exit after its result
_RESULT_BYTES = 16 * 1024 * 1024
_START = (
    "import json, sys; request = json.loads(sys.stdin.readline()); sys.path[:] = request['path']; "
    "from scheduler.client.process_child import main; main(request)"
)


class HandlerFailed(Exception):  # noqa: N818 - stands for the error that the child process raised
    """A handler in a child process raised an error, or the process ended without a result."""


class HandlerProcess:
    """One child process for one event."""

    def __init__(self, handler: Handler, job_type: str, body: bytes) -> None:
        """Start the process: it reads the event from standard input and writes its result to a separate pipe."""
        self._result, output = os.pipe()
        try:
            module, script = _home(handler)
            request = {
                "path": sys.path, "output": output, "module": module, "script": script, "job_type": job_type,
                "function": function_name(handler.handle), "body": body.decode(),
            }
            self._process = subprocess.Popen(  # noqa: S603 - Python itself
                [sys.executable, "-c", _START], stdin=subprocess.PIPE, pass_fds=(output,), start_new_session=True,
            )
        except BaseException:
            os.close(self._result)
            raise
        finally:
            os.close(output)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._lifeline = self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: there will be no result
            self._lifeline.write(json.dumps(request).encode() + b"\n")
            self._lifeline.flush()

    def wait(self, timeout: float | None = None) -> object:
        """Return the handler's result or raise its error; terminate it after `timeout` seconds."""
        timed_out = threading.Event()

        def expire() -> None:
            timed_out.set()
            self.stop(StopReason.TIMED_OUT)

        timer = None if timeout is None else threading.Timer(timeout, expire)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            result = self._read()
            code = self._reap()
        finally:
            if timer is not None:
                timer.cancel()
            with contextlib.suppress(OSError):
                self._lifeline.close()
        if "returned" in result:
            return result["returned"]
        if timed_out.is_set():
            raise HandlerTimedOut(timeout or 0.0)
        return _raise(result, code)

    def stop(self, _: StopReason) -> None:
        """Terminate the process and its children: SIGTERM, then SIGKILL."""
        self._signal(signal.SIGTERM)
        killer = threading.Thread(target=self._kill_later, name="scheduler kill", daemon=True)
        killer.start()

    def _kill_later(self) -> None:
        if not self._ended.wait(KILL_SECONDS):
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:  # the process id is not reused before it is reaped
            if not self._ended.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _read(self) -> dict[str, Any]:
        with os.fdopen(self._result, "rb") as pipe:
            raw = pipe.readline(_RESULT_BYTES + 1)  # a remaining child may hold the pipe open
        if len(raw) > _RESULT_BYTES:
            self._signal(signal.SIGKILL)
            return {"error": f"the result is larger than {_RESULT_BYTES:,} bytes", "traceback": ""}
        try:
            result = json.loads(raw)
        except ValueError:
            return {}
        return result if isinstance(result, dict) else {}

    def _reap(self) -> int:
        """Wait for the process to exit, and kill its remaining children."""
        give_up_at = time.monotonic() + KILL_SECONDS
        options = os.WEXITED | os.WNOWAIT | os.WNOHANG
        pause = threading.Event()
        while os.waitid(os.P_PID, self._process.pid, options) is None:
            if time.monotonic() > give_up_at:
                self._signal(signal.SIGKILL)
            pause.wait(0.01)
        with self._lock:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._ended.set()
            return self._process.wait()


def _raise(result: dict[str, Any], code: int) -> object:
    if "snooze" in result:
        raise Snooze(result["snooze"])
    if "give_up" in result:
        raise GiveUp(result["give_up"])
    if "not_json" in result:
        raise NotJson(result["not_json"])
    if "error" in result:
        cause = _Traceback(result["traceback"]) if result["traceback"] else None
        raise HandlerFailed(result["error"]) from cause
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    raise HandlerFailed(f"the handler's process ended {how} and without a result")


class _Traceback(Exception):  # noqa: N818 - shown as the cause
    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def _home(handler: Handler) -> tuple[str, str | None]:
    """Return the name of the handler's module, and its file if that is a script."""
    name = module_name(handler.handle)
    if name != "__main__":
        return name, None
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name, None
    script = getattr(main, "__file__", None)
    if script is None:
        raise HandlerFailed("process=True needs a handler in a file that a child process can import")
    return name, script
