"""The page: serves its built files, or says what to do if they are missing."""

from __future__ import annotations

import mimetypes
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

from wtb.domain.errors import NotFound

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent / "page_files"
"""Where `make web`, and the build of a wheel, put the page."""

VIEWS = ("runs", "batches", "workflows", "audit")
"""The first words of the page's addresses. All of them are one file: the page shows the view of its address."""

ADDRESSES = ("/assets/{name}", "/", *(f"/{view}{rest}" for view in VIEWS for rest in ("", "/{rest:path}")))
"""All routes of the page."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MISSING = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>WTB</title><h1>The page is not built</h1>"
    "<p>In a clone of the repository, run <code>make web</code> and load this address again. Elsewhere, "
    "install a release: <code>pip install 'workflow-test-bench[server]'</code>.</p><p>The API works without the page: "
    "<a href='/openapi.json'>openapi.json</a>.</p></html>"
)


def is_page(path: str) -> bool:
    """Whether an address is the page or one of its files, which hold no data and are open to everybody."""
    before, _, rest = path.partition("/")
    return path == "/" or (not before and rest.partition("/")[0] in ("assets", *VIEWS))


@router.get("/assets/{name}")
def send_asset(name: str) -> Response:
    """Send a file of the page. Its name holds a hash of its content, so that browsers may keep it."""
    path = _assets().get(name)
    if path is None:
        raise NotFound(f"the page has no file {name!r}; load the page again: it may be of an older version")
    kept = "public, max-age=31536000, immutable" if "-" in name else "no-cache"
    return FileResponse(path, media_type=mimetypes.guess_type(name)[0], headers={"Cache-Control": kept})


def send_page() -> Response:
    """Send the page, whichever of its views the address names."""
    index = FOLDER / "index.html"
    if not index.is_file():
        return HTMLResponse(_MISSING)
    return FileResponse(index, headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"})


for _address in ADDRESSES[1:]:
    router.add_api_route(_address, send_page)


def _assets() -> dict[str, Path]:
    """Return the files of the page by name: nothing else can be asked for, whatever a request writes."""
    return _found(FOLDER.stat().st_mtime_ns) if FOLDER.is_dir() else {}


@cache
def _found(_built: int) -> dict[str, Path]:
    return {path.name: path for path in (FOLDER / "assets").iterdir() if path.is_file()}
