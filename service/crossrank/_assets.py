"""Finds the files that are shipped beside the code: SQL migrations and schemas.

They live at the top level of the repository, where people look for them, and are copied into the wheel under `_shipped`. An
editable install has no such copy, so the checkout is asked second; both places are searched by this one module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent


def asset_folder(name: str) -> Path:
    """The folder `name` ("migrations" or "schemas"), in the wheel or in the checkout.

    Raises FileNotFoundError naming both places when the installation is incomplete.
    """
    places = (_PACKAGE / "_shipped" / name, _PACKAGE.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"{name}/ is missing from this installation; looked in {places[0]} and {places[1]}")
