"""What an operator can set: read once by `app`, from arguments, then environment variables `CROSSRANK_*`, then these defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of one service process. Bounds on input and memory are in `limits.Limits`."""

    model_config = SettingsConfigDict(env_prefix="CROSSRANK_", extra="forbid", frozen=True)

    data: Path = Field(default=Path("data"), description="Folder that holds everything; created when absent.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=4318, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    insecure: bool = Field(
        default=False,
        description="Listen beyond this machine although there is no authentication; anyone who reaches the port can read and write.",
    )
    decode_threads: int = Field(default=2, ge=1, le=64, description="Threads that decode request bodies.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least severe message logged.")
