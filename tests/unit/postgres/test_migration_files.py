"""Migrations expand first: an older release still works with the tables, and no client has to wait."""

import re

import pytest

from scheduler.postgres.migration_files import Migration, files

SINCE = 6  # those before were applied before there were two releases to run side by side
BREAKS = re.compile(
    r"\bDROP\s+(?:COLUMN|TABLE|TYPE|FUNCTION|CONSTRAINT)\b|\bRENAME\b|\bDROP\s+INDEX\s+(?!CONCURRENTLY)"
    r"|\bALTER\s+COLUMN\b.*\b(?:TYPE|SET\s+NOT\s+NULL)\b",
    re.IGNORECASE,
)
NEW_COLUMN = re.compile(r"\bADD\s+COLUMN\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\s+([^,;]*)", re.IGNORECASE)
NOT_CONSTANT = re.compile(r"DEFAULT\s+(?!'|\d|true|false|now\(\))", re.IGNORECASE)
NEW_TABLE = re.compile(r"\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.IGNORECASE)
NEW_INDEX = re.compile(r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+(\w+)", re.IGNORECASE)
RENAMED_INDEX = re.compile(r"\AALTER\s+INDEX\s+(\w+)\s+RENAME\s+TO\s+\w+", re.IGNORECASE)
INDEX = re.compile(r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+\w+\s+ON\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE)
FUNCTION = re.compile(r"\ACREATE\s+(?:OR\s+REPLACE\s+)?FUNCTION\b", re.IGNORECASE)
WRITTEN = re.compile(r"\A(?:UPDATE|DELETE\s+FROM|INSERT\s+INTO)\s+(\w+)", re.IGNORECASE)
CONSTRAINT = re.compile(
    r"\bADD\s+(?:CONSTRAINT|CHECK|UNIQUE|PRIMARY)\b(?!.*\bNOT\s+VALID\b)", re.IGNORECASE | re.DOTALL
)


def replaced(statement, migration, new):
    """Return whether an index is renamed whose name is reused: an older release may use it by name."""
    renamed = RENAMED_INDEX.match(statement)
    return renamed is not None and (
        renamed[1] in new or re.search(rf"\bRENAME\s+TO\s+{renamed[1]}\b", migration.sql) is not None
    )


def problems(migration, unknown=frozenset()):
    """Return the problems for the previous release, which lacks some names, and the locks that block others."""
    new = unknown | set(NEW_TABLE.findall(migration.sql))
    for statement in migration.statements():
        # The body of a function does not run now.
        if BREAKS.search(statement) and not FUNCTION.match(statement) and not replaced(statement, migration, new):
            yield f"takes away what the previous release uses, contract a release later: {statement}"
        if statement.upper().startswith("ALTER TABLE"):
            for name, kind in NEW_COLUMN.findall(statement):
                if "NOT NULL" in kind.upper() and "DEFAULT" not in kind.upper():
                    yield f"the previous release leaves {name} out, and has no default for it"
                if NOT_CONSTANT.search(kind):
                    yield f"{name}: a default that is not a constant rewrites every row"
            if CONSTRAINT.search(statement):
                yield "a constraint reads all rows under a lock: add it NOT VALID"
        if "$$" in statement:
            continue  # as above
        if set(INDEX.findall(statement)) - new:
            yield "an index on a table that exists: -- Concurrently on the first line of a separate file"
        if set(WRITTEN.findall(statement)) - new:
            yield "rows are filled in by the program, in batches, not by a migration"
    if migration.concurrently:
        migration.index_changes()
    elif "INDEX CONCURRENTLY" in migration.sql.upper():
        yield "CONCURRENTLY runs outside a transaction: say -- Concurrently on the first line"


def test_every_migration_can_be_applied_while_the_previous_release_works():
    later = files()[SINCE - 1 :]
    unknown = {name for each in later for found in (NEW_TABLE, NEW_INDEX) for name in found.findall(each.sql)}
    found = {each.name: list(problems(each, unknown)) for each in later}
    assert not any(found.values()), found


@pytest.mark.parametrize(("sql", "problem"), [
    ("ALTER TABLE jobs DROP COLUMN retries", "takes away"),
    ("ALTER TABLE jobs RENAME retries TO tries", "takes away"),
    ("ALTER INDEX jobs_due RENAME TO jobs_old", "takes away"),
    ("ALTER TABLE jobs ADD COLUMN a text NOT NULL, ADD COLUMN b text", "no default"),
    ("ALTER TABLE jobs ADD COLUMN a uuid DEFAULT gen_random_uuid()", "rewrites every row"),
    ("ALTER TABLE jobs ADD CONSTRAINT c CHECK (retries > 0)", "NOT VALID"),
    ("CREATE INDEX i ON jobs (retries)", "Concurrently on the first line"),
    ("CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON jobs (retries)", "say -- Concurrently"),
    ("UPDATE jobs SET retries = 0", "in batches"),
])
def test_what_would_break_or_block_is_found(sql, problem):
    assert any(problem in each for each in problems(Migration(9, "0009_bad.sql", sql)))


@pytest.mark.parametrize("sql", [
    "ALTER TABLE jobs ADD COLUMN a text NOT NULL DEFAULT 'x', ADD COLUMN b text",
    "CREATE TABLE t (id int); CREATE INDEX i ON t (id); INSERT INTO t VALUES (1)",
    "ALTER INDEX jobs_due RENAME TO j; ALTER INDEX j RENAME TO jobs_due",
    "CREATE TRIGGER t AFTER UPDATE OF retries ON jobs FOR EACH ROW EXECUTE FUNCTION f()",
    "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ UPDATE jobs SET retries = 0 $$",
    "-- Concurrently: an index.\nCREATE INDEX CONCURRENTLY IF NOT EXISTS i ON jobs (retries)",
])
def test_what_expands_is_let_through(sql):
    assert list(problems(Migration(9, "0009_good.sql", sql))) == []
