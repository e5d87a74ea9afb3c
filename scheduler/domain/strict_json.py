"""Parse JSON strictly: no duplicate keys, no NaN, only strings that Postgres can store."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # undocumented, stable
from typing import Any, NoReturn

from scheduler.domain.errors import MAX_PROBLEMS, Problem, Reason, Rejected, Unparsed

_BLANK = re.compile(r"[ \t\n\r]*").match
# A member's name without escapes, up to the value; other names take the slow path.
_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
_NEXT = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*").match
# A cheap test for NUL or half a surrogate pair; only if it matches is every escape checked.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])").search
# Everything before the first escape of a NUL or of half a surrogate pair.
_STORABLE = re.compile(
    r"(?:[^\\]++|\\[^u]|\\u(?!0000|[dD][89a-fA-F])|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+"
).match
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]").search
_MAX_PATH = 200  # characters of a field's name in a problem
_MAX_SEARCHED = 10_000  # values in which the paths of such strings are searched
# A string, which may lack its end: otherwise the search for one would take quadratic time.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# A text may have this many arrays and objects, and a long one an array or object for this many characters.
_FEW, _SPARSE = 20_000, 5
# Python's own limit depends on its version. A text this deep has at least twice as many characters.
MAX_DEPTH = 950
_NO_BRACKETS = re.compile(r"[^][{}]+")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
# Longer texts are parsed without a Python call per object, which takes longer for a short one.
_LARGE = 4096


class _Unacceptable(Exception):  # noqa: N818 - never leaves this module
    """A problem found by a parser hook."""


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
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

# Objects are tuples of their members, which needs no call to Python; no other JSON value is a tuple.
_scan_flat = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_constant).scan_once  # type: ignore[attr-defined]

# For our own JSON, which needs no checks: without hooks no Python runs per object.
_scan_ours = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # undocumented, stable


def parse_object(body: bytes, exact: str) -> tuple[dict[str, Any], str | None]:
    """Return the members of a JSON object and the source text of the member `exact`.

    In a large body the objects in the value of `exact` are checked, but not built.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unparsed(f"is not UTF-8 (byte {error.start})") from None
    if len(text) > 2 * MAX_DEPTH:
        _check_brackets(text)
    try:
        members, source = _parse_flat(text, exact) or _members(text, exact)
        storable = "\\" not in text or not _SUSPECT(text) or _is_storable(text)
    except _Unacceptable as error:
        raise _rejected(str(error)) from None
    except JSONDecodeError as error:
        raise Unparsed(f"is not JSON: {error.msg} at character {error.pos}") from None
    except StopIteration as error:
        raise Unparsed(f"is not JSON: no value at character {error.value}") from None
    except RecursionError:
        raise Unparsed("is nested too deeply") from None
    except ValueError:
        raise _rejected("holds a number with too many digits") from None
    if not storable:
        raise _unstorable(text)
    return members, source


def _check_brackets(text: str) -> None:
    """Reject a deeply nested text, and a large one of almost only brackets, which is costly to parse and store."""
    opened = text.count("[") + text.count("{")
    if opened <= MAX_DEPTH:
        return
    outside = _STRING.sub("", text)
    if max(accumulate(map(_STEP.__getitem__, _NO_BRACKETS.sub("", outside))), default=0) > MAX_DEPTH:
        raise Unparsed("is nested too deeply")
    most = max(_FEW, len(text) // _SPARSE)
    if opened > most and outside.count("[") + outside.count("{") > most:
        raise Unparsed(f"has more than {most:,} arrays and objects, the maximum for its size")


def _parse_flat(text: str, exact: str) -> tuple[dict[str, Any], str | None] | None:
    """Parse an object with at most one nested object, which is a member's value, as in most commands.

    Return None for any other object and for invalid JSON. If there are no more braces than objects, no string
    contains one.
    """
    objects = text.count("{")
    if text[:1] != "{" or objects > 2 or text.count("}") != objects:  # noqa: PLR2004 - the two objects
        return None
    try:
        pairs, end = _scan_flat(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    members = _object(pairs)
    if end != len(text):
        return None
    nested = [name for name, value in members.items() if type(value) is tuple]
    if len(nested) != objects - 1 or (exact in members and exact not in nested):
        return None
    for name in nested:
        members[name] = _object(members[name])
    return members, text[text.find("{", 1) : text.find("}") + 1] if exact in nested else None


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
    large = len(text) > _LARGE
    while more:
        key, start = _name(text, at)
        value, end = _scan_large(text, start, build=key != exact) if large else _scan(text, start)
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


def _scan_large(text: str, start: int, *, build: bool) -> tuple[Any, int]:
    """Return a value and its end; unless `build`, with None for the objects inside it.

    The first scan collects the members of all objects, to find keys that occur twice.
    """
    objects: list[list[tuple[str, Any]]] = []
    collect = json.JSONDecoder(object_pairs_hook=objects.append, parse_constant=_constant)
    value, end = collect.scan_once(text, start)  # type: ignore[attr-defined]  # as above
    for pairs in objects:
        if len(pairs) > 1 and len(dict(pairs)) != len(pairs):
            _object(pairs)
    if not objects:
        return value, end
    if build:
        if text[start] == "{" and len(objects) == 1:
            return dict(objects[0]), end
        return _scan_ours(text, start)  # type: ignore[no-any-return]
    return {} if text[start] == "{" else value, end


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


def _is_storable(text: str) -> bool:
    match = _STORABLE(text)
    return match is not None and match.end() == len(text)


def _unstorable(text: str) -> Rejected:
    """Name the strings and keys that Postgres cannot store, as far as a limited search finds them."""
    problem = "holds \\u0000 or half a surrogate pair, which Postgres cannot store"
    # One more than is reported: the search stops there, regardless of the body's size.
    paths = list(islice(_unstorable_paths(_scan_ours(text, _skip(text, 0))[0]), MAX_PROBLEMS + 1)) or ["body"]
    listed = [Problem(path[:_MAX_PATH], problem) for path in paths[:MAX_PROBLEMS]]
    return Rejected(listed, more=0 if len(paths) == len(listed) else None)


def _unstorable_paths(document: Any) -> Iterator[str]:
    """Yield the path of each string, key or value, that Postgres cannot store."""
    parents: list[tuple[str, Iterator[tuple[Any, Any]]]] = [("", iter([("", document)]))]
    for _ in range(_MAX_SEARCHED):
        name, item = next(parents[-1][1], (None, None))
        if name is None:
            parents.pop()
            if not parents:
                return
            continue
        if isinstance(name, str) and _UNSTORABLE(name):
            yield _joined(parents, name)
        if isinstance(item, str):
            if _UNSTORABLE(item):
                yield _joined(parents, name)
        elif isinstance(item, list):
            parents.append((str(name), iter(enumerate(item))))
        elif isinstance(item, dict):
            parents.append((name, iter(item.items())))


def _joined(parents: list[tuple[Any, Any]], name: str | int) -> str:
    names = [*(str(parent) for parent, _ in parents), str(name)]
    path = ".".join(filter(None, names[: _MAX_PATH]))
    return path.encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00")


def _rejected(problem: str) -> Rejected:
    return Rejected([Problem("body", problem)], Reason.JSON)
