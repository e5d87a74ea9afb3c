"""A cursor leads back to its place, and a hostile one to a plain no."""

import base64
import json
from datetime import UTC, datetime

import pytest

from scheduler.api import cursors
from scheduler.api.problems import Unprocessable

NOW = datetime(2026, 11, 17, 8, 0, 0, 123456, tzinfo=UTC)
JOB = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"


def made(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_a_cursor_is_read_as_it_was_written():
    assert cursors.read("jobs", cursors.write("jobs", NOW, JOB)) == (NOW, JOB)
    assert cursors.read("jobs", None) is None


KEYS = {"jobs": [JOB], "runs": [JOB], "next": [JOB], "audit": [f"0{JOB}", f"1{7:019}"], "delayed": [f"1{7:019}"]}


@pytest.mark.parametrize("kind", KEYS)
def test_the_key_of_a_cursor_is_of_its_own_list(kind):
    """The key of another list's cursor would be an invalid UUID or number for the database."""
    for key in {key for keys in KEYS.values() for key in keys} | {f"1{JOB}", "1" + "9" * 19}:
        cursor = cursors.write(kind, NOW, key)
        if key in KEYS[kind]:
            assert cursors.read(kind, cursor) == (NOW, key)
        else:
            with pytest.raises(Unprocessable):
                cursors.read(kind, cursor)


@pytest.mark.parametrize("cursor", [
    "", "x", "é", "%00", "A" * 501, "=", "....", "../../etc/passwd", "' OR 1=1 --", "W10", made([]), made({}),
    made(7), made(None), made(["jobs"]), made(["jobs", NOW.isoformat()]), made(["jobs", NOW.isoformat(), JOB, 1]),
    made(["runs", NOW.isoformat(), JOB]), made(["jobs", 7, JOB]), made(["jobs", NOW.isoformat(), None]),
    made(["jobs", NOW.isoformat(), "x'); DROP TABLE jobs; --"]), made(["jobs", NOW.isoformat(), JOB + "\n"]),
    made(["jobs", "2026-11-17T08:00:00", JOB]), made(["jobs", "0001-01-01T00:00:00+14:00", JOB]),
    made(["jobs", "9999-12-31T23:59:59-14:00", JOB]), made(["jobs", "infinity", JOB]), made(["jobs", "", ""]),
    made(["jobs", NOW.isoformat(), JOB.replace("7", "\u0667")]),  # digits, but of another script
    base64.urlsafe_b64encode(b"[" * 300).decode(), base64.urlsafe_b64encode(b'["jobs","\xff","x"]').decode(),
])
def test_a_hostile_cursor_is_a_422_of_its_own_field(cursor):
    with pytest.raises(Unprocessable) as found:
        cursors.read("jobs", cursor)
    assert [error.field for error in found.value.errors] == ["after"]
