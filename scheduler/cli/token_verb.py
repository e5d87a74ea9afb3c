"""`scheduler token`: a token for the API."""

import json
from argparse import Namespace

from scheduler.cli.verb_helpers import cli_caller
from scheduler.domain.errors import Misconfigured
from scheduler.processes.roles import missing_extra
from scheduler.settings import Settings

_MAX_SUB = 200


def make(settings: Settings, args: Namespace) -> str | None:
    """Print a token; raises Misconfigured if no key can sign it."""
    try:
        from scheduler.api.tokens import MAX_LIFETIME, issue  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise missing_extra("scheduler token", "api", error) from None
    if settings.jwt_key is None:
        raise Misconfigured("set SCHEDULER_JWT_KEY (or SCHEDULER_JWT_KEY_FILE) to the API's secret")
    sub = args.sub if args.sub is not None else cli_caller().who or "cli"
    if not 0 < len(sub) <= _MAX_SUB or not sub.isprintable():
        return f"--sub must be 1 to {_MAX_SUB} characters and printable"
    if args.lasts > MAX_LIFETIME:
        return f"--for must be at most {MAX_LIFETIME.days}d: the API rejects tokens with a longer lifetime"
    token = issue(settings.jwt_key, role=args.role, sub=sub, tenant=args.tenant, lifetime=args.lasts,
                  issuer=settings.jwt_issuer, audience=settings.jwt_audience)
    fields = {"token": token, "sub": sub, "role": args.role, "tenant": args.tenant or "*",
              "expires_in": int(args.lasts.total_seconds())}
    print(json.dumps(fields) if args.json else token)
    return None
