"""The documentation lists every reason with the sentence the sender reads."""

from crossrank.ingest import reasons
from crossrank.ingest.reasons import REASONS
from tests.support.plugin import REPOSITORY


def test_every_reason_is_declared_and_documented():
    names = {value for key, value in vars(reasons).items() if key.isupper() and isinstance(value, str)}
    assert names == set(REASONS)
    documented = (REPOSITORY / "docs" / "formats.md").read_text()
    for reason, sentence in REASONS.items():
        assert f"| {reason} | {sentence} |" in documented
