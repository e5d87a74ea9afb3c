"""The child process of a handler with `process=True`: reads one event, runs the handler, writes its result."""

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import threading
import traceback
from types import FrameType
from typing import Any

from scheduler.client.handlers import Handler, function_name, registered
from scheduler.client.results import GiveUp, NotJson, Snooze, as_json

SCRIPT = "__scheduler_main__"  # the host's script as a module: its main block must not run
_TRACEBACK = 16_000  # characters
_active = threading.Event()


def active() -> bool:
    """Return whether this process runs a handler for a Runner in another process."""
    return _active.is_set()


def main(request: dict[str, Any]) -> None:
    """Run one handler for a request from process_handler.py."""
    _active.set()
    output = request["output"]
    os.set_inheritable(output, False)
    _die_with_parent()
    signal.signal(signal.SIGTERM, _on_terminate)
    result = _run(request)
    with os.fdopen(output, "wb") as pipe:
        pipe.write(json.dumps(result).encode() + b"\n")


def _run(request: dict[str, Any]) -> dict[str, Any]:
    try:
        handler = _find(request)
        event = handler.model.model_validate_json(request["body"])
        returned = handler.handle(event)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
        return {"returned": json.loads(as_json(returned))}
    except Snooze as snooze:
        return {"snooze": snooze.seconds}
    except GiveUp as error:
        return {"give_up": str(error)}
    except NotJson as error:
        return {"not_json": str(error)}
    except BaseException as error:  # noqa: BLE001 - SystemExit is a failure too
        last = traceback.format_exception_only(error)[-1].strip()
        return {"error": last, "traceback": "".join(traceback.format_exception(error))[-_TRACEBACK:]}


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _find(request: dict[str, Any]) -> Handler:
    if request["script"] is None:
        importlib.import_module(request["module"])
    else:
        spec = importlib.util.spec_from_file_location(SCRIPT, request["script"])
        assert spec is not None  # noqa: S101 - Python runs this file as its main program
        assert spec.loader is not None  # noqa: S101 - as above
        module = importlib.util.module_from_spec(spec)
        sys.modules[SCRIPT] = module
        spec.loader.exec_module(module)
    for handler in registered(request["job_type"]):
        if handler.process and function_name(handler.handle) == request["function"]:
            return handler
    raise LookupError(
        f"importing {request['module']} does not register {request['function']} for {request['job_type']!r}: "
        "process=True needs a handler that is registered when its module is imported"
    )


def _die_with_parent() -> None:
    """Kill this process and its own children when the Runner ends: standard input is closed then."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        os.read(lifeline, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="scheduler lifeline", daemon=True).start()


def _on_terminate(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)  # so that the handler's `finally` blocks run
