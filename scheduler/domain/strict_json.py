"""Parse JSON strictly: no duplicate keys, no NaN, only strings that Postgres can store."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # undocumented, stable
from typing import Any, NoReturn

from scheduler.domain.errors import MOST_PROBLEMS, Problem, Reason, Rejected

_BLANK = re.compile(r"[ \t\n\r]*").match
# A member's name without escapes, up to the value; other names take the slow path.
_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
_NEXT = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*").match
# A cheap test for NUL or half a surrogate pair; only if it matches is every string checked.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])").search
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]").search
_LONGEST_PATH = 200  # characters of a field's name in a problem


class _Unacceptable(Exception):  # noqa: N818 - never leaves this module
    """A problem found by a parser hook."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Unacceptable(f"has the key {key[:80]!r} twice in one object")
            seen.add(key)
    return members


def _constant(name: str) -> NoReturn:
    raise _Unacceptable(f"holds {name}, which is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_scan = _decoder.scan_once  # type: ignore[attr-defined]  # raw_decode without its extra call

# For our own JSON, which needs no checks: without hooks no Python runs per object.
_scan_ours = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # undocumented, stable


def parse_object(body: bytes, exact: str) -> tuple[dict[str, Any], str | None]:
    """Return the members of a JSON object and the source text of the member `exact`."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _rejected(f"is not UTF-8 (byte {error.start})") from None
    try:
        members, source = _parse_flat(text, exact) or _members(text, exact)
        # One more than is reported: the search stops there, regardless of the body's size.
        paths = islice(_unstorable("", members), MOST_PROBLEMS + 1)
        unstorable = list(paths) if "\\" in text and _SUSPECT(text) else []
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
        listed = [Problem(path[:_LONGEST_PATH], problem) for path in unstorable[:MOST_PROBLEMS]]
        raise Rejected(listed, more=0 if len(unstorable) == len(listed) else None)
    return members, source


def _parse_flat(text: str, exact: str) -> tuple[dict[str, Any], str | None] | None:
    """Parse an object whose only nested object is its member `exact`, as in most commands.

    Return None for any other object and for invalid JSON. If there are no more braces than objects, no string
    contains one.
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
    flat = end == len(text) and text.count("{") == objects and text.count("}") == objects
    return (members, source) if flat else None


def _members(text: str, exact: str) -> tuple[dict[str, Any], str | None]:
    """Parse the outermost object member by member to get the source text of `exact`."""
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


def split_member(body: bytes, name: str) -> tuple[dict[str, Any], str, bytes]:
    """Return the members of our own JSON, the source text of `name`, and the object's text without that member.

    The remaining text is unchanged; a missing member has an empty text. Raises Rejected for invalid JSON.
    """
    try:
        text = body.decode()
        return _split_once(text, name) or _split_members(text, name)
    except (_Unacceptable, ValueError, StopIteration, RecursionError) as error:
        raise _rejected(f"is not JSON: {type(error).__name__}") from None


def _split_once(text: str, name: str) -> tuple[dict[str, Any], str, bytes] | None:
    """Split an object in which the name occurs once and not first, as in our own JSON; None for any other."""
    mark = f',"{name}":'
    if text.count(mark) != 1 or text[:1] != "{":
        return None
    members, end = _scan_ours(text, 0)
    at = text.index(mark)
    value, stop = _scan_ours(text, at + len(mark))
    if end != len(text) or members.get(name) != value:
        return None  # the member belongs to a nested object
    return members, text[at + len(mark) : stop], (text[:at] + text[stop:]).encode()


def _split_members(text: str, name: str) -> tuple[dict[str, Any], str, bytes]:
    members: dict[str, Any] = {}
    texts: dict[str, str] = {}
    source = ""
    at = _skip(text, 0)
    more = text[at : at + 1] == "{"
    at = _skip(text, at + 1)
    while more:
        key, start = _name(text, at)
        members[key], end = _scan_ours(text, start)
        texts[key] = text[at:end]
        source = text[start:end] if key == name else source
        following = _NEXT(text, end)
        if following is None:
            raise JSONDecodeError("expected ',' or '}'", text, end)
        more, at = following[1] == ",", following.end()
    texts.pop(name, None)
    return members, source, f"{{{','.join(texts.values())}}}".encode()


def _name(text: str, at: int) -> tuple[str, int]:
    """Return a member's name and the start of its value."""
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


def _unstorable(path: str, value: Any) -> Iterator[str]:
    """Yield the path of each string, key or value, that Postgres cannot store."""
    if isinstance(value, str):
        if _UNSTORABLE(value):
            yield path
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unstorable(f"{path}.{index}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            name = key.encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00")
            member_path = f"{path}.{name}" if path else name
            if _UNSTORABLE(key):
                yield member_path
            yield from _unstorable(member_path, item)


def _rejected(problem: str) -> Rejected:
    return Rejected([Problem("body", problem)], Reason.JSON)
