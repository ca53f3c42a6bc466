"""Merges what ranks say about the job's shape: each post may name a part, later values win, nothing is forgotten."""

from __future__ import annotations

from typing import Any


def merged_topology(before: dict[str, Any] | None, posted: dict[str, Any]) -> dict[str, Any]:
    """`before` with `posted` laid over it: ranks by number (field by field), groups by (name, members), the largest world size."""
    before = before or {}
    ranks = {r["rank"]: dict(r) for r in before.get("ranks", ())}
    for entry in posted.get("ranks", ()):
        known = ranks.setdefault(entry["rank"], {})
        known.update(entry, coords={**known.get("coords", {}), **entry.get("coords", {})})
    groups = {(g["name"], tuple(sorted(g["ranks"]))): g for g in [*before.get("groups", ()), *posted.get("groups", ())]}
    sizes = [size for size in (before.get("world_size"), posted.get("world_size")) if size is not None]
    return {
        **({"world_size": max(sizes)} if sizes else {}),
        "ranks": [ranks[r] for r in sorted(ranks)],
        "groups": [groups[key] for key in sorted(groups)],
    }
