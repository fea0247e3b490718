"""The files of the web folder, read once: index.html at /, the others by their names. Nothing from elsewhere."""

import hashlib
import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page_routes(folder: Path) -> list[Route]:
    """One route for each file, GET and HEAD, with an ETag. `folder` is flat and small."""
    assert (folder / "index.html").is_file(), f"{folder} holds no index.html"
    return [_route(path) for path in sorted(folder.iterdir()) if path.is_file()]


def _route(path: Path) -> Route:
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers = {**HEADERS, "etag": f'"{hashlib.sha256(content).hexdigest()[:16]}"'}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return Route("/" if path.name == "index.html" else f"/{path.name}", serve, name=f"page {path.name}")
