"""JSON as the contract takes it: no duplicate keys, no NaN, nothing that Postgres cannot hold."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # undocumented, stable
from typing import Any, NoReturn

from scheduler.domain.errors import MOST_PROBLEMS, Problem, Reason, Rejected

_BLANK = re.compile(r"[ \t\n\r]*").match
# A member's name in its usual plain spelling, up to the value; any other goes the longer way.
_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
_NEXT = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*").match
# A cheap hint that some string may hold NUL or half a surrogate pair; only then is each string looked at.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])").search
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]").search


_LONGEST_PATH = 200  # characters of a field's name in a problem


class _Unacceptable(Exception):  # noqa: N818 - never leaves this module
    """What a parser hook found."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Unacceptable(f"has the key {key[:80]!r} twice in one object")
            seen.add(key)
    return found


def _constant(name: str) -> NoReturn:
    raise _Unacceptable(f"holds {name}, which is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_scan = _decoder.scan_once  # type: ignore[attr-defined]  # raw_decode, without a call between

# For what we wrote ourselves, where nothing need be looked for: no hook, and so no Python for each object in it.
_scan_ours = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # as above


def parse_object(body: bytes, exact: str) -> tuple[dict[str, Any], str | None]:
    """Return the members of a JSON object, and the very text that the member `exact` was written in."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _rejected(f"is not UTF-8 (byte {error.start})") from None
    try:
        members, source = _plainly(text, exact) or _members(text, exact)
        # One more than is reported: the search stops there, whatever the size of the body.
        found = islice(_unstorable("", members), MOST_PROBLEMS + 1)
        unstorable = list(found) if "\\" in text and _SUSPECT(text) else []
    except _Unacceptable as error:
        raise _rejected(str(error)) from None
    except JSONDecodeError as error:
        raise _rejected(f"is not JSON: {error.msg} at character {error.pos}") from None
    except StopIteration as error:
        raise _rejected(f"is not JSON: no value at character {error.value}") from None
    except RecursionError:
        raise _rejected("is nested too deeply") from None
    except ValueError:
        raise _rejected("holds a number with too many digits") from None
    if unstorable:
        problem = "holds \\u0000 or half a surrogate pair, which Postgres cannot store"
        listed = [Problem(where[:_LONGEST_PATH], problem) for where in unstorable[:MOST_PROBLEMS]]
        raise Rejected(listed, more=0 if len(unstorable) == len(listed) else None)
    return members, source


def _plainly(text: str, exact: str) -> tuple[dict[str, Any], str | None] | None:
    """Read an object that has no other in it but its member `exact`: most commands are such.

    None for any other and for any that is not JSON. With no more braces than objects, all braces are theirs.
    """
    if not text.startswith("{"):
        return None
    try:
        members, end = _scan(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    objects, source = 1, None
    if exact in members:
        if type(members[exact]) is not dict:
            return None
        objects, source = 2, text[text.find("{", 1) : text.find("}") + 1]
    plain = end == len(text) and text.count("{") == objects and text.count("}") == objects
    return (members, source) if plain else None


def _members(text: str, exact: str) -> tuple[dict[str, Any], str | None]:
    """Walk the outermost object by hand, so that each member's own text is known."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise _Unacceptable("is empty" if at == len(text) else "must be a JSON object")
    members: dict[str, Any] = {}
    source = None
    at = _skip(text, at + 1)
    more = text[at : at + 1] != "}"
    at = at if more else at + 1
    while more:
        key, start = _name(text, at)
        value, end = _scan(text, start)
        if key in members:
            raise _Unacceptable(f"has the key {key[:80]!r} twice in one object")
        members[key] = value
        if key == exact:
            source = text[start:end]
        following = _NEXT(text, end)
        if following is None:
            raise JSONDecodeError("expected ',' or '}'", text, end)
        more, at = following[1] == ",", following.end()
    if _skip(text, at) != len(text):
        raise JSONDecodeError("text after the object's end", text, at)
    return members, source


def parse_apart(body: bytes, name: str) -> tuple[dict[str, Any], str, bytes]:
    """Return the members of an object of our own, the text of one of them, and the object without that one.

    What stays is the very text that it was; where there is no such member its text is empty. Raise Rejected where
    it is no JSON.
    """
    try:
        text = body.decode()
        return _apart_at_once(text, name) or _apart(text, name)
    except (_Unacceptable, ValueError, StopIteration, RecursionError) as error:
        raise _rejected(f"is not JSON: {type(error).__name__}") from None


def _apart_at_once(text: str, name: str) -> tuple[dict[str, Any], str, bytes] | None:
    """Read an object in which that name stands once and after another, as in what we write; None for any other."""
    mark = f',"{name}":'
    if text.count(mark) != 1 or text[:1] != "{":
        return None
    members, end = _scan_ours(text, 0)
    at = text.index(mark)
    value, stop = _scan_ours(text, at + len(mark))
    if end != len(text) or members.get(name) != value:
        return None  # it is another's, within
    return members, text[at + len(mark) : stop], (text[:at] + text[stop:]).encode()


def _apart(text: str, name: str) -> tuple[dict[str, Any], str, bytes]:
    members: dict[str, Any] = {}
    texts: dict[str, str] = {}
    found = ""
    at = _skip(text, 0)
    more = text[at : at + 1] == "{"
    at = _skip(text, at + 1)
    while more:
        key, start = _name(text, at)
        members[key], end = _scan_ours(text, start)
        texts[key] = text[at:end]
        found = text[start:end] if key == name else found
        following = _NEXT(text, end)
        if following is None:
            raise JSONDecodeError("expected ',' or '}'", text, end)
        more, at = following[1] == ",", following.end()
    texts.pop(name, None)
    return members, found, f"{{{','.join(texts.values())}}}".encode()


def _name(text: str, at: int) -> tuple[str, int]:
    """Read a member's name and return where its value starts."""
    plain = _NAME(text, at)
    if plain is not None:
        return plain[1], plain.end()
    if text[at : at + 1] != '"':
        raise JSONDecodeError("expected a key in double quotes", text, at)
    key, at = scanstring(text, at + 1, True)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise JSONDecodeError("expected ':'", text, at)
    return key, _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    blank = _BLANK(text, at)
    return blank.end() if blank else at


def _unstorable(where: str, value: Any) -> Iterator[str]:
    """Yield the path of each string, key or value, that Postgres could not store."""
    if isinstance(value, str):
        if _UNSTORABLE(value):
            yield where
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unstorable(f"{where}.{index}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            name = key.encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00")
            path = f"{where}.{name}" if where else name
            if _UNSTORABLE(key):
                yield path
            yield from _unstorable(path, item)


def _rejected(problem: str) -> Rejected:
    return Rejected([Problem("body", problem)], Reason.JSON)
