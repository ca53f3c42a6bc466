"""`crossrank export --format perfetto|chrome`: options to parameters, and a file that is whole or not there."""

from __future__ import annotations

import pytest

from crossrank import cli, errors
from crossrank.commands.export_trace import run_export_as
from tests.support.stub_service import Reply, fault, stub_service


def run(job, output, url, format_="perfetto", **options):
    asked = {"data": None, "steps": (3, 4), "ranks": None, "top": None, "aligned": "repaired"}
    run_export_as(format_, job, output, url=url, **{**asked, **options})


def test_the_file_is_what_the_service_sent(tmp_path, capsys):
    paths = []

    def answer(request):
        paths.append(request.path)
        return Reply(raw=b"trace")

    with stub_service(answer) as stub:
        run("a/b", tmp_path / "t.pftrace", stub.url, ranks="0,8-9", aligned="raw")
    assert paths == ["/v1/jobs/a%2Fb/export?format=perfetto&aligned=raw&from=3&to=4&ranks=0%2C8-9"]
    assert (tmp_path / "t.pftrace").read_bytes() == b"trace"
    assert "open it in https://ui.perfetto.dev" in capsys.readouterr().out


def test_a_refusal_leaves_no_file(tmp_path):
    with (
        stub_service(lambda _: fault(404, "not_found", "no events of rank 9")) as stub,
        pytest.raises(errors.NotFound, match="rank 9"),
    ):
        run("a", tmp_path / "t.json", stub.url, ranks="9", format_="chrome")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to(tmp_path):
    with stub_service(lambda _: Reply(raw=b"trace")) as stub, pytest.raises(errors.BadParameter, match="cannot write"):
        run("a", tmp_path / "no" / "t.json", stub.url)


@pytest.mark.parametrize(
    ("options", "message"), [(("--format", "svg"), "parquet, perfetto or chrome"), (("--ranks", "3"), "Parquet holds all ranks")]
)
def test_wrong_usage_says_what_is_right(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["crossrank", "export", "job", "-o", str(tmp_path), *options])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
