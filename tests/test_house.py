"""The rules of the house that no linter knows. Each test names the places that break its rule."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from crossrank import cli, errors
from crossrank.commands.watch_app import EXIT_PROBLEMS, EXIT_UNTRACED
from crossrank.counters import DECLARED
from crossrank.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
SERVICE = ROOT / "service" / "crossrank"
CLIENT = ROOT / "client" / "crossrank_client"
MODULES = sorted([*SERVICE.rglob("*.py"), *CLIENT.rglob("*.py")])
KEEPERS_OF_TIME = {SERVICE / "timesource.py", CLIENT / "clock.py"}
MODULE_LINES, FUNCTION_LINES = 400, 70
BINARY = {".gz", ".zst", ".parquet", ".body", ".pb", ".arrow", ".png"}
NOT_OURS = {".git", ".venv", "__pycache__", "data", "dist", "build", "node_modules"}


@cache
def tracked() -> tuple[Path, ...]:
    """The files of the repository; in an unpacked archive, all that are not made by tools."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return tuple(p for name in listed.stdout.split("\0") if name and (p := ROOT / name).is_file())
    return tuple(p for p in ROOT.rglob("*") if p.is_file() and not NOT_OURS & set(p.relative_to(ROOT).parts))


@cache
def texts() -> tuple[tuple[Path, str], ...]:
    return tuple((p, p.read_text(encoding="utf-8")) for p in tracked() if p.suffix not in BINARY)


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((p, ast.parse(p.read_text())) for p in MODULES)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def saying(pattern: str, paths: tuple[tuple[Path, str], ...]) -> list[str]:
    """Places whose text matches, as file:line."""
    return [
        f"{short(path)}:{text.count(chr(10), 0, found.start()) + 1}: {found.group()}"
        for path, text in paths
        if path != Path(__file__).resolve()
        for found in re.finditer(pattern, text)
    ]


def service_texts() -> tuple[tuple[Path, str], ...]:
    return tuple((p, p.read_text()) for p in MODULES)


# --- modules ---


def test_every_module_teaches_its_idea():
    assert [short(p) for p, tree in trees() if not ast.get_docstring(tree)] == []


def test_modules_and_functions_are_short():
    long_modules = [short(p) for p, text in service_texts() if text.count("\n") > MODULE_LINES]
    long_functions = [
        f"{short(p)}:{f.lineno} {f.name} {f.end_lineno - f.lineno + 1}"
        for p, tree in trees()
        for f in functions(tree)
        if f.end_lineno is not None and f.end_lineno - f.lineno + 1 > FUNCTION_LINES
    ]
    assert (long_modules, long_functions) == ([], [])


def test_no_module_is_a_drawer_for_everything():
    assert [short(p) for p in MODULES if p.stem.strip("_") in {"util", "utils", "helper", "helpers", "misc"}] == []


def test_nothing_is_left_for_later():
    assert saying(r"\b(TODO|FIXME|XXX|HACK)\b", texts()) == []


def test_no_decoder_that_runs_code_or_is_quadratic():
    found = [
        f"{short(p)}:{node.lineno}: {ast.unparse(node)}"
        for p, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in {"pickle.load", "pickle.loads", "json_format.Parse", "json_format.MessageToDict", "yaml.load"}
    ]
    imported = saying(r"^\s*(from|import) .*\b(json_format|pickle|marshal|shelve)\b.*", service_texts())
    assert (found, imported) == ([], [])


def test_only_timesource_asks_the_time():
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names) if any(n.name == "time" for n in names) and path not in KEEPERS_OF_TIME:
                    found.append(f"{short(path)}:{node.lineno}: import time")
                case ast.ImportFrom(module="time") if path not in KEEPERS_OF_TIME:
                    found.append(f"{short(path)}:{node.lineno}: from time")
                case ast.Attribute(attr="now" | "utcnow" | "today", value=ast.Name(id="datetime" | "date")):
                    found.append(f"{short(path)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_layers_hold():
    script = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", script, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- files ---


def test_no_file_names_a_machine_or_a_registry():
    machine = r"/work/\w+|/root/|/home/\w+|/Users/\w+|/tmp/(?!\w*\W*$)\w+"
    registry = r"pypi\.org|pythonhosted\.org|ghcr\.io|docker\.io|quay\.io|mcr\.microsoft|index-url|find-links"
    allowed = r"Makefile:\d+: (index-url|find-links)"  # the options that keep them out
    assert [p for p in saying(f"{machine}|{registry}", texts()) if not re.match(allowed, p)] == []


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-dev.txt", "constraints-torch.txt", "constraints-torch-cuda.txt"])
def test_constraints_are_pinned_hashed_and_without_addresses(name):
    text = (ROOT / name).read_text().replace("\\\n", " ")
    assert "://" not in text
    for line in filter(None, text.splitlines()):
        assert re.match(r"[\w.\-]+(\[[\w,\-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = {name: _pinned(name) for name in ("constraints.txt", "constraints-dev.txt")}
    assert [d for d in map(_distribution, project["project"]["dependencies"]) if d not in pinned["constraints.txt"]] == []
    groups = project["dependency-groups"]
    assert [d for d in map(_distribution, groups["build"] + groups["dev"]) if d not in pinned["constraints-dev.txt"]] == []
    both = pinned["constraints.txt"].items() & pinned["constraints-dev.txt"].items()
    assert len(both) == len(pinned["constraints.txt"]), "the two files must agree"
    torch = _pinned("constraints-torch-cuda.txt")
    assert [d for d in map(_distribution, groups["torch"]) if d not in torch] == []
    assert _pinned("constraints-torch.txt").items() <= torch.items(), "the build without CUDA brings nothing else"


def _distribution(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


def _pinned(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.\-]+)(?:\[[\w,\-]+\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE)
    return {n.lower().replace("_", "-"): version for n, version in found}


def test_test_files_have_names_of_their_own():
    names = Counter(p.name for p in tracked() if p.name.startswith("test_") and p.suffix == ".py")
    assert [n for n, times in names.items() if times > 1] == []


# --- commands and documents ---


def makefile() -> str:
    return (ROOT / "Makefile").read_text()


def targets() -> dict[str, str]:
    """Targets of the Makefile with the sentence `make help` shows."""
    return dict(re.findall(r"^([a-z][a-z-]*):[^=\n]*?(?:## (.*))?$", makefile(), re.MULTILINE))


def test_every_make_target_is_explained_and_phony():
    assert [name for name, sentence in targets().items() if not sentence] == []
    phony = re.search(r"^\.PHONY: (.*)$", makefile(), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == set(targets())


def test_documents_name_commands_that_exist():
    # A group without a name only keeps its commands in a file of their own.
    apps = [cli.app, *(group.typer_instance for group in cli.app.registered_groups if not group.name)]
    known = {command.name or command.callback.__name__ for a in apps for command in a.registered_commands if command.callback}
    known |= {group.name for group in cli.app.registered_groups}
    for path in documents():
        text = path.read_text()
        code = "\n".join(re.findall(r"```(?:sh|console|text)?\n(.*?)```|`([^`\n]+)`", text, re.DOTALL) and _code(text))
        assert [m for m in re.findall(r"\bmake ([a-z][a-z-]*)", code) if m not in targets()] == [], short(path)
        assert [
            m for m in re.findall(r"^(?:\$ )?(?:\.venv/bin/)?crossrank ([a-z]+)", code, re.MULTILINE) if m not in known
        ] == [], short(path)


def _code(text: str) -> list[str]:
    return [block or inline for block, inline in re.findall(r"```\w*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL)]


def documents() -> list[Path]:
    return [p for p in tracked() if p.suffix == ".md"]


def test_links_between_documents_resolve():
    broken = []
    for path in documents():
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            if "://" in file or file.startswith("mailto:"):
                continue
            there = (path.parent / file).resolve() if file else path
            if not there.exists() or (anchor and anchor not in _anchors(there)):
                broken.append(f"{short(path)}: {target}")
    assert broken == []


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_the_readme_has_exactly_two_set_up_commands():
    readme = (ROOT / "README.md").read_text()
    section = re.search(r"^## Set-up\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert section is not None
    commands = re.search(r"```sh\n(.*?)```", section[1], re.DOTALL)
    assert commands is not None
    assert [line.split("#")[0].strip() for line in commands[1].splitlines()] == ["make demo", "make test"]


def test_operations_names_every_counter_setting_and_exit_code():
    text = (ROOT / "docs" / "operations.md").read_text()
    assert [d.name for d in DECLARED if f"`crossrank_{d.name}" not in text] == []
    assert [name for name in Settings.model_fields if f"`CROSSRANK_{name.upper()}`" not in text] == []
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    ends = {0, 1, cli.EXIT_REJECTED, EXIT_PROBLEMS, EXIT_UNTRACED, cli.EXIT_STOPPED, cli.EXIT_CLOSED, *cli.EXIT_CODES.values()}
    assert ends == codes


def test_every_fault_class_states_its_code():
    faults = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CrossrankError)]
    assert len({c.code for c in faults}) == len(faults)


def test_the_container_files_say_what_they_must():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    (service,) = compose["services"].values()
    assert [p for p in service["ports"] if str(p).endswith("4318:4318")]
    (volume,) = compose["volumes"]
    assert [v for v in service["volumes"] if str(v).startswith(f"{volume}:")]
    docker = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes" in docker
    assert re.search(r"^USER (?!root)", docker, re.MULTILINE)
    assert re.search(r'^(CMD|ENTRYPOINT) \["crossrank", "serve"', docker, re.MULTILINE)
