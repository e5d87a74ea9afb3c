"""The entry point of `scheduler COMMAND`."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from scheduler import __version__, settings
from scheduler.cli import preview, verb_arguments
from scheduler.cli.completion import SHELLS, completion_script
from scheduler.cli.id_prefixes import UnknownId
from scheduler.cli.times import join_relative
from scheduler.domain.errors import Misconfigured, NotMigrated, Unavailable
from scheduler.domain.names import DUE_QUEUE
from scheduler.domain.recurrence import tzdata_version
from scheduler.domain.targets.command import CommandTarget
from scheduler.domain.targets.target import TARGETS
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.ops import interruptible_connect, logs, traces
from scheduler.ops.undumpable import make_undumpable
from scheduler.processes.roles import ROLES, WORKERS, ProcessRole, missing_extra
from scheduler.processes.runtime import EX_CONFIG, EX_UNAVAILABLE, Stop
from scheduler.settings import Settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = _main(argv)
    if interruptible_connect.has_abandoned_connects():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    try:
        settings.use_zone_data(os.environ)
    except Misconfigured as error:
        return _fail(str(error), EX_CONFIG)
    parser = _parser()
    args = parser.parse_args(join_relative(sys.argv[1:] if argv is None else argv))
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except ModuleNotFoundError as error:
        return _fail(str(missing_extra("this command", args.extra, error)), EX_CONFIG)
    except Misconfigured as error:
        return _fail(str(error), EX_CONFIG)
    except NotMigrated as error:
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
    parser.set_defaults(extra="server")  # of most commands
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=run)
        return added

    def add_no_wait(added: argparse.ArgumentParser) -> None:
        text = f"exit {EX_UNAVAILABLE} if a server cannot be reached at start, instead of waiting for it"
        added.add_argument("--no-wait", action="store_true", help=text)

    migrate = add("migrate", _migrate, "Apply pending migrations.")
    output = migrate.add_mutually_exclusive_group()
    output.add_argument("--status", action="store_true", help="show applied and pending migrations")
    text = "show the pending migrations, their effects and their duration; change nothing"
    output.add_argument("--plan", action="store_true", help=text)
    text = ("move the tables of release 0.2 from the schema public to SCHEDULER_SCHEMA, in one transaction; stop "
            "processes of older releases first")
    output.add_argument("--move-to-schema", action="store_true", help=text)
    add_no_wait(migrate)
    for role in ROLES.values():
        added = add(role.name, _serve, role.help)
        added.set_defaults(role=role, extra=role.extra)
        add_no_wait(added)
        if role.name == "worker":
            _add_handlers(added)
    outbox = add("outbox", _outbox, "Publish a host's outbox; DATABASE_URL is the host's database.")
    outbox.add_argument("--sql", action="store_true", help="print the SQL of the host's tables and exit")
    add_no_wait(outbox)
    dev = add("dev", _dev, "Run the whole sidecar on this machine, without set-up.")
    dev.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="time before it exits")
    text = "use the servers that DATABASE_URL and AMQP_URL name, instead of private ones"
    dev.add_argument("--use-env", action="store_true", help=text)
    preview.add_arguments(add("preview", preview.run, "The next occurrences of a schedule."))
    top = add("top", _top, "Live overview in a terminal: rates, lag, backlog, replicas.")
    top.add_argument("--once", action="store_true", help="print one frame and exit (default when piped)")
    top.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="refresh interval (default: 1)")
    zones = add("zones", _operate, "Time zone data, and the jobs to be replanned with it.")
    zones.set_defaults(module="scheduler.cli.zones_verb", verb="zones", function="show")
    zones.add_argument("--plan", action="store_true", help="show the changes without applying them")
    zones.add_argument("--json", action="store_true", help="print one JSON object")
    verb_arguments.add(commands, _operate)
    text = "Send a test webhook."
    _add_webhook_verbs(commands.add_parser("webhook", help=text, description=text))
    completion = add("completion", _completion, "A completion script for a shell: bash, zsh or fish.")
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    health = add("health", _health, "Readiness of a running process, for HEALTHCHECK.")
    checked = health.add_mutually_exclusive_group()
    checked.add_argument("--live", action="store_true", help="check liveness instead")
    checked.add_argument("--database", action="store_true", help="check the settings of Postgres instead")
    health.add_argument("--json", action="store_true", help="with --database: print JSON")
    return parser


def _add_handlers(worker: argparse.ArgumentParser) -> None:
    text = ("serve the @on_due handlers of a Python module and the commands of SCHEDULER_COMMANDS_FILE, "
            "no webhooks; repeatable")
    worker.add_argument("--handlers", action="append", metavar="MODULE", help=text)
    text = f"queue of their events (default: {DUE_QUEUE})"
    worker.add_argument("--queue", default=DUE_QUEUE, metavar="NAME", help=text)
    worker.add_argument("--list", action="store_true", help="print the modules' handlers and exit")
    kinds = [f"{kind}s" for kind in TARGETS]
    text = f"serve only {' or only '.join(kinds)} (default: all); one kind per process keeps their secrets apart"
    worker.add_argument("--only", choices=kinds, help=text)
    worker.set_defaults(command=_worker)


def _add_webhook_verbs(webhook: argparse.ArgumentParser) -> None:
    verbs = webhook.add_subparsers(required=True, metavar="VERB")
    text = "Send one signed example as a worker does, and print the response; exit 0 if it counts as a success."
    test = verbs.add_parser("test", help=text, description=text)
    test.set_defaults(command=_webhook_test, extra="worker")
    test.add_argument("url", metavar="URL")
    test.add_argument("--secret", metavar="NAME", help="signing secret in SCHEDULER_WEBHOOK_SECRETS_FILE")
    test.add_argument("--tenant", metavar="NAME", default=DEFAULT_TENANT, help="owner tenant of the secret")
    test.add_argument("--json", action="store_true", help="print one JSON object")


def _settings(role: str) -> Settings:
    config = settings.load(os.environ)
    logs.set_up(config.log_level, config.log_format, role)
    return config


def _migrate(args: argparse.Namespace) -> int:
    from scheduler.cli import migrate  # noqa: PLC0415 - only this command needs it

    url = _settings("migrate").database_url
    if args.status:
        migrate.show_status(url)
    elif args.plan:
        migrate.show_plan(url)
    else:
        return migrate.run(url, Stop(late_exit_code=EX_UNAVAILABLE), wait=not args.no_wait,
                           move=args.move_to_schema)
    return 0


def _worker(args: argparse.Namespace) -> int:
    if not args.handlers:
        if args.list or args.queue != DUE_QUEUE:
            raise Misconfigured("--list and --queue need --handlers MODULE")
        args.role = _only(args.role, args.only)
        return _serve(args)
    if args.only:
        raise Misconfigured("--only and --handlers exclude each other")
    from scheduler.workers import handler_worker  # noqa: PLC0415 - only this command needs it

    handlers = handler_worker.load_handlers(args.handlers)
    if args.list:
        print("\n".join(handler_worker.describe_handlers(handlers)))
        return 0
    presence, commands = args.role.works[0], WORKERS[CommandTarget.kind]
    args.role = replace(args.role, works=(presence, commands, handler_worker.worker_class(handlers, args.queue)))
    return _serve(args)


def _only(role: ProcessRole, kind: str | None) -> ProcessRole:
    """Return the worker's role with one kind of work."""
    if kind is None:
        return role
    target = kind.removesuffix("s")
    only = replace(role, works=(role.works[0], WORKERS[target]))
    if TARGETS[target].offers_in is not None and len(only.load(settings.load(os.environ))) < len(only.works):
        raise Misconfigured(f"--only {kind} needs {TARGETS[target].offers_in}")
    return only


def _serve(args: argparse.Namespace) -> int:
    make_undumpable()
    from scheduler.postgres.migrate import require_migrated  # noqa: PLC0415 - only this command needs it
    from scheduler.processes import lifecycle  # noqa: PLC0415 - only this command needs it

    role: ProcessRole = args.role
    config = _settings(role.name)
    traces.set_up(role.name, os.environ)
    stop = Stop()
    if args.no_wait and role.database:
        require_migrated(config.database_url, role.name)
    parts, maintenance = lifecycle.start(role, config, stop)
    try:
        lifecycle.serve(role, config, stop, parts, wait=not args.no_wait)
    finally:
        # A thread inside the database driver can crash the process while the interpreter exits.
        stop.set()
        maintenance.join()
        traces.close()
    logs.get_logger(__name__).info("stopped", role=role.name)
    return 0


def _outbox(args: argparse.Namespace) -> int:
    if args.sql:
        from scheduler.client import tables  # noqa: PLC0415 - only this command needs it

        print(tables())
        return 0
    from scheduler.processes import outbox  # noqa: PLC0415 - only this command needs it

    outbox.run(_settings("outbox"), Stop(), wait=not args.no_wait)
    return 0


def _top(args: argparse.Namespace) -> int:
    from scheduler.cli import top  # noqa: PLC0415 - only this command needs it

    return top.run(once=args.once, every=args.every)


def _operate(args: argparse.Namespace) -> int:
    """Run a verb, which returns an error text, an exit code, or None."""
    from scheduler.cli.id_search import complete_ids  # noqa: PLC0415 - only these commands need it

    config = settings.load(os.environ)
    logs.set_up("error", "text", args.verb)
    try:
        complete_ids(config, args)
        problem = getattr(import_module(args.module), args.function)(config, args)
    except UnknownId as error:
        problem = str(error)
    except KeyboardInterrupt:
        problem = "interrupted"
    if isinstance(problem, int):
        return problem
    return 0 if problem is None else _fail(problem, 1)


def _webhook_test(args: argparse.Namespace) -> int:
    from scheduler.workers.webhook import test_call  # noqa: PLC0415 - only this command needs it, and an extra

    config = settings.load(os.environ)
    return 0 if test_call.run(config, args.url, args.secret, print, tenant=args.tenant, as_json=args.json) else 1


def _dev(args: argparse.Namespace) -> int:
    from scheduler.dev import sidecar  # noqa: PLC0415 - only this command needs it

    return sidecar.run(args.seconds, use_env=args.use_env)


def _completion(args: argparse.Namespace) -> int:
    print(completion_script(_parser(), args.shell))
    return 0


def _health(args: argparse.Namespace) -> int:
    config = settings.load(os.environ)
    if args.database:
        from scheduler.cli import database_health  # noqa: PLC0415 - only this option needs it

        return database_health.show(config, as_json=args.json)
    host = "127.0.0.1" if config.metrics_host in ("0.0.0.0", "::") else config.metrics_host  # noqa: S104 - connected to, not listened on
    host = f"[{host}]" if ":" in host else host
    url = f"http://{host}:{config.metrics_port}/{'livez' if args.live else 'readyz'}"
    # Ignore proxies from the environment: the process is on this machine.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    print(f"asked {url}", file=sys.stderr)
    try:
        with direct.open(url, timeout=5) as response:
            print(response.read().decode().strip())
            return 0
    except urllib.error.HTTPError as error:
        print(error.read().decode().strip())
    except OSError as error:
        print(json.dumps({"ready": False, "missing": {"process": {"address": url, "problem": str(error)}}}))
    return 1
