"""The console's own files: read once, named by their content, compressed, and kept by browsers for a year."""

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
_KEPT = "public, max-age=31536000, immutable"
_SERVED = {".css", ".js", ".svg"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served."""

    body: bytes
    zipped: bytes
    media_type: str
    etag: str


@cache
def _assets() -> tuple[dict[str, str], dict[str, Asset]]:
    """Return each file's address by its name, and each asset by its address."""
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
    """Return where a file of static/ is served; the address changes with its content."""
    return _assets()[0][name]


def serve(request: Request, name: str) -> Response:
    """Return a file by the last part of its address, compressed where the browser takes that."""
    asset = _assets()[1].get(name)
    if asset is None:
        return Response("There is no such file.", 404, media_type="text/plain")
    headers = {"Cache-Control": _KEPT, "ETag": asset.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(asset.zipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def accepts_gzip(request: Request) -> bool:
    """Tell whether the browser takes what is compressed."""
    offered = request.headers.get("accept-encoding", "")
    return any(part.strip().split(";")[0] == "gzip" and "q=0" not in part.replace("q=0.", "") for part in
               offered.split(","))
