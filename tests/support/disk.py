"""The shim that makes a disk fail or be cut off (disk_shim.c): compiled once, and what it leaves turned into a folder again."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def shim() -> Path | None:
    """The compiled shim; None where there is no C compiler or no LD_PRELOAD."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not Path("/proc/self/fd").is_dir():
        return None
    library = Path(tempfile.mkdtemp(prefix="crossrank-shim-")) / "disk_shim.so"
    source = Path(__file__).with_name("disk_shim.c")
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], capture_output=True, check=False)
    return library if done.returncode == 0 else None


def identity(path: Path) -> str:
    """The name by which the shim knows a file."""
    said = subprocess.run(["stat", "--format=%i.%W.%w", path], capture_output=True, text=True, check=True).stdout.strip()
    inode, born_s, born = said.split(".", 2)
    fraction = born.split(".")[1].split()[0] if "." in born else "0"
    return f"{inode}.{born_s if born_s != '-' else 0}.{int(fraction)}"


def after_power_cut(root: Path, shadow: Path, target: Path) -> Path:
    """Makes `target` what a power cut leaves of `root` at worst: only what was synced, only names in folders that were synced."""
    _restore(identity(root), shadow, target)
    return target


def _restore(folder: str, shadow: Path, target: Path) -> None:
    target.mkdir()
    listing = shadow / f"d.{folder}"
    if not listing.exists():
        return
    for line in listing.read_text().splitlines():
        known, kind, name = line.split(" ", 2)
        if kind == "d":
            _restore(known, shadow, target / name)
        elif (shadow / f"f.{known}").exists():
            shutil.copyfile(shadow / f"f.{known}", target / name)
        else:
            (target / name).touch()


def seed_shadow(root: Path, shadow: Path) -> None:
    """Counts everything that is in a folder as synced, before a process with the shim uses it."""
    shadow.mkdir(parents=True, exist_ok=True)
    for folder in (root, *(p for p in root.rglob("*") if p.is_dir())):
        lines = []
        for entry in sorted(folder.iterdir()):
            lines.append(f"{identity(entry)} {'d' if entry.is_dir() else 'f'} {entry.name}\n")
            if entry.is_file():
                shutil.copyfile(entry, shadow / f"f.{identity(entry)}")
        (shadow / f"d.{identity(folder)}").write_text("".join(lines))
