"""Addresses of the page itself. They hold no data of any job and are open; the data they show is asked for with the user's token."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from crossrank.api.reply import JsonReply, takes_gzip
from crossrank.figures.palette import palette
from crossrank.web.static_files import INDEX, StaticFile, plotly_file, plotly_version, static_file

router = APIRouter(include_in_schema=False)
# plotly.js sets styles through the CSSOM, which a policy does not restrain, and adds one style sheet, which `style-src 'self'`
# refuses; the page ships those rules itself (docs/decisions.md).
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_REVALIDATE: Final = "no-cache"
_FOR_A_YEAR: Final = "public, max-age=31536000, immutable"
IfNoneMatch = Annotated[str, Header()]
AcceptEncoding = Annotated[str, Header()]


@router.get("/")
def get_page(if_none_match: IfNoneMatch = "", accept_encoding: AcceptEncoding = "") -> Response:
    """The page."""
    return _reply(static_file(INDEX), _REVALIDATE, if_none_match, accept_encoding)


@router.get("/web/palette.json")
def get_palette() -> Response:
    """The colours that charts and timeline share, and the version of plotly.js."""
    return JsonReply({**palette(), "plotly_version": plotly_version()}, headers={"Cache-Control": _REVALIDATE})


@router.get("/web/plotly.min.js")
def get_plotly(
    v: Annotated[str, Query(max_length=64)] = "", if_none_match: IfNoneMatch = "", accept_encoding: AcceptEncoding = ""
) -> Response:
    """plotly.js of the installed package; kept for good when asked for by its version."""
    keep = _FOR_A_YEAR if v == plotly_version() else _REVALIDATE
    return _reply(plotly_file(), keep, if_none_match, accept_encoding)


@router.get("/web/{path:path}")
def get_file(path: str, if_none_match: IfNoneMatch = "", accept_encoding: AcceptEncoding = "") -> Response:
    """A file of the page."""
    return _reply(static_file(path), _REVALIDATE, if_none_match, accept_encoding)


def _reply(file: StaticFile, keep: str, if_none_match: str, accept_encoding: str) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": keep, "Vary": "Accept-Encoding", "Content-Security-Policy": POLICY}
    if file.etag in if_none_match:
        return Response(status_code=304, headers=headers)
    if file.squeezed is not None and takes_gzip(accept_encoding):
        return Response(file.squeezed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.content, media_type=file.media_type, headers=headers)
