"""argv → one process or one operator command."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from scheduler import __version__, preview, settings
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.domain.names import DUE_QUEUE
from scheduler.domain.recurrence import tzdata_version
from scheduler.domain.runs.run import RunStatus
from scheduler.domain.times import parse_instant
from scheduler.ops import logs, reaching, traces
from scheduler.roles import ROLES, Role
from scheduler.runtime import Stop, backoff
from scheduler.settings import Settings

EX_UNAVAILABLE = 69
EX_CONFIG = 78
MOST_LISTED = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = _main(argv)
    if reaching.left_behind():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except Misconfigured as error:
        return _fail(str(error), EX_CONFIG)
    except Unavailable as error:
        return _fail(str(error), EX_UNAVAILABLE)
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _fail(message: str, code: int) -> int:
    print(f"scheduler: {logs.without_secrets(message)}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scheduler", description="A reminder engine for RabbitMQ and Postgres."
    )
    version = f"scheduler {__version__} (tzdata {tzdata_version()})"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=run)
        return added

    def add_no_wait(added: argparse.ArgumentParser) -> None:
        text = f"exit {EX_UNAVAILABLE} when a server cannot be reached at start, instead of waiting for it"
        added.add_argument("--no-wait", action="store_true", help=text)

    migrate = add("migrate", _migrate, "Bring the database to the current schema.")
    shown = migrate.add_mutually_exclusive_group()
    shown.add_argument("--status", action="store_true", help="show what is applied and what is pending")
    text = "show what is pending, what it does to this database and how long that may take; change nothing"
    shown.add_argument("--plan", action="store_true", help=text)
    add_no_wait(migrate)
    for role in ROLES.values():
        added = add(role.name, _serve, role.help)
        added.set_defaults(role=role)
        add_no_wait(added)
        if role.name == "worker":
            _add_handlers(added)
    outbox = add("outbox", _outbox, "Host's outbox → AMQP: DATABASE_URL is the host's own database.")
    outbox.add_argument("--sql", action="store_true", help="print the SQL of the host's tables and exit")
    add_no_wait(outbox)
    dev = add("dev", _dev, "The whole sidecar on this machine, with no set-up.")
    dev.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="end with a summary")
    preview.add_arguments(add("preview", preview.run, "The next occurrences of a schedule."))
    top = add("top", _top, "The overview live in a terminal: rates, lag, backlog, replicas.")
    top.add_argument("--once", action="store_true", help="print one frame and end; the default when piped")
    top.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="refresh (default: 1)")
    text = "What the database knows of a job."
    _add_job_verbs(commands.add_parser("job", help=text, description=text))
    text = "What became of the occurrences of tracked jobs, and another chance for those that were given up."
    _add_run_verbs(commands.add_parser("run", help=text, description=text))
    health = add("health", _health, "Ask a running process whether it is ready; for HEALTHCHECK.")
    health.add_argument("--live", action="store_true", help="ask whether it is stuck instead")
    return parser


def _add_handlers(worker: argparse.ArgumentParser) -> None:
    text = "serve the @on_due handlers of a Python module, and nothing else; may be given several times"
    worker.add_argument("--handlers", action="append", metavar="MODULE", help=text)
    text = f"the queue that their events come from (default: {DUE_QUEUE})"
    worker.add_argument("--queue", default=DUE_QUEUE, metavar="NAME", help=text)
    worker.add_argument("--list", action="store_true", help="print what the modules serve, and end")
    worker.set_defaults(command=_worker)


def _add_job_verbs(job: argparse.ArgumentParser) -> None:
    verbs = job.add_subparsers(required=True, metavar="VERB")
    text = "Where a job stands, and why its last event was late; from the database alone."
    show = verbs.add_parser("show", help=text, description=text)
    show.set_defaults(command=_job_show)
    show.add_argument("id", type=UUID, metavar="ID", help="the job's id, as its request has it")
    show.add_argument("--json", action="store_true", help="print the stored values as one JSON object")


def _add_run_verbs(run: argparse.ArgumentParser) -> None:
    verbs = run.add_subparsers(required=True, metavar="VERB")

    def add(verb: str, text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(verb, help=text, description=text)
        added.set_defaults(command=_run, verb=verb)
        return added

    def add_event(added: argparse.ArgumentParser) -> None:
        text = "of its event, the same for every attempt"
        added.add_argument("event_id", type=UUID, metavar="EVENT_ID", help=text)

    listed = add("list", "Runs, open and finished, those that were due last first.")
    statuses = [each.value for each in RunStatus if each is not RunStatus.EXPECTED]
    listed.add_argument("--status", choices=statuses, metavar="S", help=f"one of {', '.join(statuses)}")
    listed.add_argument("--job", type=UUID, metavar="ID", help="of this job only")
    listed.add_argument("--job-type", metavar="T", help="of jobs of this type only")
    listed.add_argument("--since", type=_instant, metavar="T", help="due then or later; RFC 3339")
    listed.add_argument("--until", type=_instant, metavar="T", help="due before then")
    listed.add_argument("--limit", type=_count, default=50, metavar="N", help="at most so many (default: 50)")
    listed.add_argument("--json", action="store_true", help="print one JSON array")
    show = add("show", "Where one run stands and why, what comes next, and how its attempts went.")
    add_event(show)
    show.add_argument("--json", action="store_true", help="print one JSON object")
    add_event(add("retry", "Give a run that was given up or cancelled a fresh set of attempts, at once."))
    export = add("export", "Finished runs as JSON lines, oldest first.")
    text = "finished then or later; RFC 3339"
    export.add_argument("--since", type=_instant, metavar="T", required=True, help=text)
    export.add_argument("--until", type=_instant, metavar="T", required=True, help="finished before then")


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_LISTED:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_LISTED}")
    return int(text)


def _settings(role: str) -> Settings:
    found = settings.load(os.environ)
    logs.set_up(found.log_level, found.log_format, role)
    return found


def _migrate(args: argparse.Namespace) -> int:
    from scheduler.postgres import migrate  # noqa: PLC0415 - only this command needs it

    found = _settings("migrate")
    if args.status:
        for state in migrate.status(found.database_url):
            when = f"applied {state.applied_at:%Y-%m-%d %H:%M:%S %Z}" if state.applied_at else "pending"
            print(f"{state.migration.name:<40} {when}")
        return 0
    if args.plan:
        return _plan(found.database_url)
    stop = Stop(late_exit_code=EX_UNAVAILABLE)
    stop.listen()
    for delay in backoff(most=5.0):
        try:
            applied = migrate.migrate(found.database_url)
        except Unavailable as error:
            if args.no_wait:
                raise
            logs.get_logger(__name__).warning("waiting for the database", problem=str(error),
                                              do="check that Postgres runs and that DATABASE_URL is right")
            if stop.wait(delay):
                return EX_UNAVAILABLE
        else:
            names = ", ".join(each.name for each in applied)
            print(f"applied {names}" if applied else "the database is up to date")
            break
    return 0


def _plan(url: str) -> int:
    from scheduler.postgres.migration_plan import plan  # noqa: PLC0415 - only this command needs it

    steps = plan(url)
    for step in steps:
        how = "one by one" if step.migration.concurrently else "in one transaction"
        print(f"{step.migration.name}, {how}: {step.migration.purpose}")
        for effect in step.effects:
            print(f"  {effect}")
    if not steps:
        print("the database is up to date")
    return 0


def _worker(args: argparse.Namespace) -> int:
    if not args.handlers:
        if args.list or args.queue != DUE_QUEUE:
            raise Misconfigured("--list and --queue go with --handlers MODULE")
        return _serve(args)
    from scheduler.workers import handlers  # noqa: PLC0415 - only this command needs it

    served = handlers.load(args.handlers)
    if args.list:
        print("\n".join(handlers.described(served)))
        return 0
    presence = args.role.works[0]
    args.role = replace(args.role, works=(presence, handlers.serving(served, args.queue)), on_request=())
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    from scheduler import process  # noqa: PLC0415 - only this command needs it
    from scheduler.postgres.connection import connect  # noqa: PLC0415 - only this command needs it

    role: Role = args.role
    found = _settings(role.name)
    role = role.asked(found)
    traces.set_up(role.name, os.environ)
    stop = Stop()
    if args.no_wait and role.database:
        connect(found.database_url, role.name).close()
    parts, maintenance = process.start(role, found, stop)
    try:
        process.serve(role, found, stop, parts, wait=not args.no_wait)
    finally:
        # A thread that is inside the database driver while the interpreter ends can take the process down with it.
        stop.set()
        maintenance.join()
        traces.close()
    logs.get_logger(__name__).info("stopped", role=role.name)
    return 0


def _outbox(args: argparse.Namespace) -> int:
    from scheduler import outbox  # noqa: PLC0415 - only this command needs it
    from scheduler.client import tables  # noqa: PLC0415 - only this command needs it

    if args.sql:
        print(tables())
        return 0
    outbox.run(_settings("outbox"), Stop(), wait=not args.no_wait)
    return 0


def _top(args: argparse.Namespace) -> int:
    from scheduler import top  # noqa: PLC0415 - only this command needs it

    return top.run(once=args.once, every=args.every)


def _job_show(args: argparse.Namespace) -> int:
    from scheduler import show_job  # noqa: PLC0415 - only this command needs it

    return 0 if show_job.run(args.id, as_json=args.json) else _fail(f"no job has the id {args.id}", 1)


def _run(args: argparse.Namespace) -> int:
    from scheduler import run_commands  # noqa: PLC0415 - only these commands need it

    problem = run_commands.VERBS[args.verb](settings.load(os.environ).database_url, args)
    return 0 if problem is None else _fail(problem, 1)


def _dev(args: argparse.Namespace) -> int:
    from scheduler.dev import sidecar  # noqa: PLC0415 - only this command needs it

    return sidecar.run(args.seconds)


def _health(args: argparse.Namespace) -> int:
    found = settings.load(os.environ)
    host = "127.0.0.1" if found.metrics_host in ("0.0.0.0", "::") else found.metrics_host  # noqa: S104 - asked for, not listened on
    host = f"[{host}]" if ":" in host else host
    url = f"http://{host}:{found.metrics_port}/{'livez' if args.live else 'readyz'}"
    # A proxy is for other machines, whatever the environment says.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=5) as answer:
            print(answer.read().decode().strip())
            return 0
    except urllib.error.HTTPError as error:
        print(error.read().decode().strip())
    except OSError as error:
        print(json.dumps({"ready": False, "missing": {"process": {"problem": str(error)}}}))
    return 1
