"""`crossrank serve`: the service in this process, until it is told to stop."""

from __future__ import annotations


def serve(**settings: object) -> None:
    """Serves until SIGINT or SIGTERM; the options of `Settings` by name, None where none was given.

    Raises BadParameter for an address or certificate that cannot be used, StoreUnavailable for the folder.
    """
    from crossrank.app import serve as run
    from crossrank.settings import Settings

    run(Settings(**{name: value for name, value in settings.items() if value is not None}))  # type: ignore[arg-type]
