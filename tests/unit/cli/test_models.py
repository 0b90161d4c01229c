"""`harness models`, and what may be packaged as a judge."""

from click.testing import CliRunner

from harness.cli.main import main
from harness.questions.family import MEMBERS
from harness.serving.gguf_file import read_gguf
from harness.serving.packaged import member_answers, member_model

MOST_BYTES = 8_000_000
LEAST_ASKED = 500


def test_every_packaged_model_says_what_it_proves() -> None:
    done = CliRunner().invoke(main, ["models"], env={"COLUMNS": "250"})
    assert done.exit_code == 0, done.output
    for name in ("attention", *MEMBERS):
        assert f"\n{name} " in done.output
    for member in MEMBERS.values():
        assert member.proves in done.output


def test_only_what_is_exact_is_packaged() -> None:
    for name, member in MEMBERS.items():
        path = member_model(name)
        assert path.stat().st_size < MOST_BYTES
        assert read_gguf(path).architecture == member.architecture
        exact = member_answers(name)
        for depth in (2048, 8192):
            right, asked = exact[depth]
            assert asked >= LEAST_ASKED
            assert right >= 0.999 * asked
