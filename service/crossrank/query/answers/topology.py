"""What does the job look like: ranks with hosts and coordinates, groups with what they are for."""

from __future__ import annotations

from typing import Any

from crossrank.query.jobview import JobView, carried


def topology(view: JobView, *, limit: int) -> dict[str, Any]:
    """GET /v1/jobs/{job}/topology: as posted, as the events say, else inferred from who communicates with whom."""
    shape = view.derived.topology
    seen = dict(zip(shape.seen, shape.stage, strict=True))
    ranks = sorted({*shape.seen, *shape.missing, *shape.coords})
    return {
        "world_size": shape.world_size,
        "sizes": shape.sizes,
        "ranks": [
            {
                "rank": r,
                "host": shape.hosts.get(r),
                "seen": r in seen,
                "stage": seen.get(r),
                "coords": shape.coords.get(r, {}),
            }
            for r in ranks[:limit]
        ],
        "missing": list(shape.missing[:limit]),
        "missing_count": shape.missing_count,
        "groups": [
            {
                "name": g.name,
                "kind": g.kind,
                "ranks": list(g.ranks),
                "hosts": len({shape.hosts[r] for r in g.ranks if r in shape.hosts}),
                "scope": g.scope,
            }
            for g in shape.groups[:limit]
        ],
        "conflicts": list(shape.conflicts),
        **carried(view, truncated=max(len(ranks), len(shape.groups)) > limit),
    }
