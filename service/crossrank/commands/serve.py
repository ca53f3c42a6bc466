"""`crossrank serve`: the service in this process, until it is told to stop."""

from __future__ import annotations

from pathlib import Path


def serve(*, data: Path, host: str, port: int, insecure: bool) -> None:
    """Serves until SIGINT or SIGTERM. Raises BadParameter for an address that cannot be used, StoreUnavailable for the folder."""
    from crossrank.app import serve as run
    from crossrank.settings import Settings

    run(Settings(data=data, host=host, port=port, insecure=insecure))
