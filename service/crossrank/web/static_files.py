"""The files of the page: what there is, what type it has, and its fingerprint.

Only files that a listing of `static/` finds are served, by their exact name in it; a name from a request is never joined to a
path, so no spelling of it can leave the folder. plotly.js comes from the installed `plotly` package: no build step, no network,
no third-party code in this repository.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final

from crossrank.errors import NotFound

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
PLOTLY: Final = "plotly.min.js"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
_SQUEEZED: Final = frozenset({".html", ".js", ".css", ".svg", ".json"})


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file ready to send. squeezed: gzip form, None where it would not help."""

    media_type: str
    etag: str
    content: bytes
    squeezed: bytes | None


def static_file(name: str) -> StaticFile:
    """The file of the page with this name relative to `static/`. Raises NotFound."""
    for path in STATIC.rglob("*"):
        if path.relative_to(STATIC).as_posix() == name and path.suffix in TYPES and path.is_file():
            stat = path.stat()
            return _read(path, stat.st_mtime_ns, stat.st_size)
    raise NotFound(f"the page has no file {name[:200]!r}", field="path")


@lru_cache(maxsize=256)
def _read(path: Path, _mtime_ns: int, _size_bytes: int) -> StaticFile:
    content = path.read_bytes()
    squeezed = gzip.compress(content, 6, mtime=0) if path.suffix in _SQUEEZED else None
    return StaticFile(TYPES[path.suffix], f'"{sha256(content).hexdigest()[:24]}"', content, squeezed)


def plotly_version() -> str:
    """Version of the installed plotly package, which names its plotly.js."""
    return version("plotly")


@lru_cache(maxsize=1)
def plotly_file() -> StaticFile:
    """plotly.js, compressed once."""
    content = (files("plotly") / "package_data" / PLOTLY).read_bytes()
    return StaticFile(TYPES[".js"], f'"plotly-{plotly_version()}"', content, gzip.compress(content, 6, mtime=0))
