"""What an operator can set: read once by `app`, from arguments, then environment variables `CROSSRANK_*`, then these defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from crossrank.limits import Limits


class Settings(BaseSettings):
    """Settings of one service process. Bounds on input and memory are in `limits.Limits`."""

    model_config = SettingsConfigDict(env_prefix="CROSSRANK_", extra="forbid", frozen=True)

    data: Path = Field(default=Path("data"), description="Folder that holds everything; created when absent.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=4318, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    insecure: bool = Field(
        default=False,
        description="Listen beyond this machine without tokens; anyone who reaches the port can read and write.",
    )
    tls_cert: Path | None = Field(default=None, description="TLS certificate chain (PEM); needs tls_key.")
    tls_key: Path | None = Field(default=None, description="Private key of the certificate (PEM).")
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port for OTLP/gRPC; 0 takes a free one. Not set: 4317 where grpcio is installed and port is 4318, else none.",
    )
    inflight_bytes: int = Field(
        default=Limits().inflight_bytes, ge=1, description="Bytes of requests in work at once; beyond it 503."
    )
    token_bytes_per_s: int = Field(default=Limits().token_bytes_per_s, ge=1, description="Body bytes a second of one token.")
    token_events_per_s: int = Field(default=Limits().token_events_per_s, ge=1, description="Events a second of one token.")
    decode_threads: int = Field(default=2, ge=1, le=64, description="Threads that decode request bodies.")
    decoder: Literal["compiled", "python"] = Field(
        default="compiled", description="How bodies are decoded; `python` is the slow plain way, with the same result."
    )
    retain_days: float | None = Field(
        default=None, gt=0, description="Events received longer ago are removed. Not set: they are kept."
    )
    retain_job_bytes: int | None = Field(
        default=None, ge=1, description="Bytes of segments of one job; beyond it its oldest are removed. Not set: they are kept."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least severe message logged.")
