"""The modules of the page: they parse, know each other, stay small and never turn data into markup; words and addresses by node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crossrank.web.static_files import STATIC

MODULES = sorted(STATIC.rglob("*.js"))
LINES_MOST = 300
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML|DOMParser|createContextualFragment"
)
IMPORT = re.compile(r"""(?:from|import\()\s*'(\.[^']+)'""")
ADDRESS = re.compile(r"https?://[^\s'\"`)]+")
KNOWN_ADDRESSES = {"http://www.w3.org/2000/svg", "https://ui.perfetto.dev"}
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


def in_node(script: str) -> object:
    """What a script that imports modules of the page prints, as JSON."""
    done = subprocess.run(
        ["node", "--no-warnings", "--experimental-vm-modules", "--input-type=module", "--eval", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=STATIC,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_modules_parse():
    script = f"""
    import {{ readFileSync }} from 'node:fs';
    import vm from 'node:vm';
    const faults = [];
    for (const name of {json.dumps([name(p) for p in MODULES])}) {{
      try {{ new vm.SourceTextModule(readFileSync(name, 'utf8'), {{ identifier: name }}); }} catch (fault) {{ faults.push(fault.stack); }}
    }}
    console.log(JSON.stringify(faults));"""
    assert in_node(script) == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_module_is_small_and_makes_no_markup_of_text(path: Path):
    text = path.read_text()
    assert len(text.splitlines()) < LINES_MOST
    assert not MARKUP.search(text)
    assert set(ADDRESS.findall(text)) <= KNOWN_ADDRESSES
    for target in IMPORT.findall(text):
        assert (path.parent / target).resolve().is_file(), f"{name(path)} imports {target}"


def test_page_has_no_inline_script_or_style():
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    for address in re.findall(r'(?:src|href)="/web/([^"]+)"', text):
        assert (STATIC / address).is_file(), address


@needs_node
def test_address_and_state_are_the_same():
    states = [
        {
            "job": "a/b <script>&=?#",
            "view": "timeline",
            "step": 9,
            "rank": 21,
            "span": "21:00ff",
            "aligned": "raw",
            "t0": "-5",
            "q": "é 100%",
        },
        {"job": "demo", "view": "compare", "from": 8, "to": 15, "base": "other", "base_from": 0, "base_to": 7},
        {},
    ]
    script = f"""
    import {{ formatState, parseState }} from './core/state.js';
    console.log(JSON.stringify({json.dumps(states)}.map((state) => parseState(formatState(state)))));"""
    assert in_node(script) == states


@needs_node
def test_senseless_addresses_are_left_out():
    script = """
    import { parseState } from './core/state.js';
    console.log(JSON.stringify([
      '?job=demo&view=nope&step=x&rank=1e9&aligned=sideways&what=ever', '?step=9', '?job=&view=why',
    ].map(parseState)));"""
    assert in_node(script) == [{"job": "demo", "view": "overview"}, {}, {}]


@needs_node
def test_numbers_read_as_people_write_them():
    script = """
    import { change, duration, stretches, withError } from './core/words.js';
    console.log(JSON.stringify([
      duration(47457208), duration(0), duration(null), duration(9259314806), duration(90e9), duration(5 * 3600e9), duration(16e15), duration(750), change(-1500),
      withError(379657664, 322819), withError(1117e6, 72e4), withError(0, 4e3), withError(2e9, 0), stretches([8, 9, 10, 12]), stretches([3]),
    ]));"""
    assert in_node(script) == [
        "47.5 ms", "0 ns", "unknown", "9.3 s", "90 s", "5 h", "185 days", "750 ns", "−1.5 µs", "380 ± 0.32 ms",
        "1.12 s ± 720 µs", "0 ± 4 µs", "2 s", "8–10, 12", "3",
    ]  # fmt: skip


@needs_node
def test_chapters_of_a_path_add_up_and_say_who_was_waited_for():
    segments = [
        {"rank": 0, "kind": "compute", "name": "forward", "start_ns": 0, "end_ns": 100, "on_path_ns": 100},
        {"rank": 0, "kind": "step", "name": "step", "start_ns": 100, "end_ns": 101, "on_path_ns": 1},
        {"rank": 1, "kind": "collective", "name": "all_reduce", "start_ns": 101, "end_ns": 150, "on_path_ns": 49},
    ]
    hops = [{"from_rank": 0, "to_rank": 1, "at_ns": 101, "edge": "collective", "group": "tp0", "seq": 3}]
    script = f"""
    import {{ chapters }} from './parts/story.js';
    console.log(JSON.stringify(chapters({json.dumps(segments)}, {json.dumps(hops)})));"""
    told = in_node(script)
    assert [(c["rank"], c["ns"]) for c in told] == [(0, 101), (1, 49)]
    assert told[1]["hop"] == "All of tp0 waited for rank 0, the last to come."


@needs_node
def test_large_whole_numbers_stay_exact():
    if in_node("console.log(JSON.stringify(JSON.parse('1', (k, v, c) => c !== undefined)))") is not True:
        pytest.skip("this node does not give the source text of numbers; browsers do")
    script = """
    globalThis.sessionStorage = undefined;
    const { parseExact, sinceNs } = await import('./core/api.js');
    const { a, b, text } = parseExact('{"a": 1795993449646934172, "b": 1795993449646934171, "text": "1795993449646934172"}');
    console.log(JSON.stringify([sinceNs(a, b), String(a), text]));"""
    assert in_node(script) == [1, "1795993449646934172", "1795993449646934172"]
