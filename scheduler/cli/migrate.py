"""`scheduler migrate`: apply pending migrations, or show them."""

from scheduler.domain.database_url import schema_of
from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres import move_schema
from scheduler.postgres.migrate import migrate, status
from scheduler.postgres.migration_plan import plan
from scheduler.postgres.schema import LEGACY
from scheduler.processes.runtime import EX_UNAVAILABLE, Stop, backoff

log = get_logger(__name__)


def run(url: str, stop: Stop, *, wait: bool, move: bool = False) -> int:
    """Apply pending migrations once the database can be reached; if `move`, move the tables first."""
    stop.listen()
    for delay in backoff(most=5.0):
        try:
            if move and move_schema.move(url):
                print(f"moved the tables from schema {LEGACY} to schema {schema_of(url)}")
            applied = migrate(url)
        except Unavailable as error:
            if not wait:
                raise
            log.warning("waiting for the database", problem=str(error),
                        do="check that Postgres runs and that DATABASE_URL is right")
            if stop.wait(delay):
                return EX_UNAVAILABLE
        else:
            names = ", ".join(migration.name for migration in applied)
            print(f"applied {names}" if applied else "the database is up to date")
            break
    return 0


def show_status(url: str) -> None:
    """Print applied and pending migrations."""
    for state in status(url):
        when = f"applied {state.applied_at:%Y-%m-%d %H:%M:%S %Z}" if state.applied_at else "pending"
        print(f"{state.migration.name:<40} {when}")


def show_plan(url: str) -> None:
    """Print the pending migrations, their effects on this database and their duration."""
    steps = plan(url)
    for step in steps:
        how = "one by one" if step.migration.concurrently else "in one transaction"
        print(f"{step.migration.name}, {how}: {step.migration.purpose}")
        for effect in step.effects:
            print(f"  {effect}")
    if not steps:
        print("the database is up to date")
