"""Static files: read once, named by their content, compressed, and cached by browsers for a year."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).resolve().parent / "static"
PREFIX = "/static/"
_CACHE_FOR_A_YEAR = "public, max-age=31536000, immutable"
_SERVED = {".css", ".js", ".svg"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A served file."""

    body: bytes
    zipped: bytes
    media_type: str
    etag: str


@cache
def _assets() -> tuple[dict[str, str], dict[str, Asset]]:
    """Return the addresses by file name, and the assets by address."""
    addresses, assets = {}, {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix not in _SERVED:
            continue
        body = path.read_bytes()
        digest = hashlib.sha256(body).hexdigest()[:12]
        address = f"{path.stem}.{digest}{path.suffix}"
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        addresses[path.relative_to(FOLDER).as_posix()] = PREFIX + address
        assets[address] = Asset(body, gzip.compress(body, 9, mtime=0), kind, f'"{digest}"')
    return addresses, assets


def address(name: str) -> str:
    """Return the address of a file in static/; it changes with the content."""
    return _assets()[0][name]


def serve(request: Request, name: str) -> Response:
    """Return a file by the last part of its address, compressed if the browser accepts that."""
    asset = _assets()[1].get(name)
    if asset is None:
        return Response("There is no such file.", 404, media_type="text/plain")
    headers = {"Cache-Control": _CACHE_FOR_A_YEAR, "ETag": asset.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(asset.zipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def accepts_gzip(request: Request) -> bool:
    """Return whether the browser accepts gzip."""
    offered = request.headers.get("accept-encoding", "")
    return any(part.strip().split(";")[0] == "gzip" and "q=0" not in part.replace("q=0.", "") for part in
               offered.split(","))
