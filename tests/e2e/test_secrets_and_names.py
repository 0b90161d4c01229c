"""API keys stay out of command lines and files; folders and models may have any name."""

import shutil
from pathlib import Path

import psutil
import pytest

from harness.errors import ServerError, SetupError
from harness.serving.client import Client
from harness.serving.orphans import read_note
from harness.serving.packaged import reference_model
from harness.serving.session import open_session
from harness.settings import Settings
from tests.e2e.conftest import Bench

pytestmark = pytest.mark.slow

KEY = "sk-start-secret"


def test_a_started_server_takes_the_key_from_the_environment_and_listens_here_only(
    tmp_path: Path,
) -> None:
    settings = Settings(ctx_tokens=2048, api_key=KEY, results=tmp_path / "results")
    notes = tmp_path / "servers"
    session = open_session(settings, tmp_path / "server.log", lambda text: None, notes=notes)
    try:
        stranger = Client(session.client.base_url)
        with pytest.raises(ServerError, match="API key"):
            stranger.get("/props")
        stranger.close()
        assert session.pid is not None
        server = psutil.Process(session.pid)
        lines = [" ".join(p.cmdline()) for p in (server, *server.parents())]
        assert not [line for line in lines if KEY in line]
        assert KEY not in str(session.identity)
        (note,) = notes.glob("*.json")
        assert (noted := read_note(note)) is not None
        assert noted.pid == session.pid
        listening = [c.laddr.ip for c in server.net_connections() if c.status == "LISTEN"]
        assert listening == ["127.0.0.1"]
    finally:
        session.close()
    assert not list(notes.iterdir())
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert not [p for p in files if KEY.encode() in p.read_bytes()]


@pytest.mark.parametrize(
    ("argument", "variable"),
    [("--api-key", "HARNESS_API_KEY"), ("--hf-token", "HF_TOKEN")],
)
def test_a_secret_in_the_servers_arguments_is_refused(
    tmp_path: Path, argument: str, variable: str
) -> None:
    settings = Settings(ctx_tokens=2048, server_args=(f"{argument}={KEY}",))
    with pytest.raises(SetupError, match=variable) as caught:
        open_session(settings, tmp_path / "log", lambda text: None)
    assert KEY not in str(caught.value)


def test_folders_and_models_with_spaces_and_japanese_names(bench: Bench) -> None:
    model = bench.root / "模型 フォルダ" / "参照 モデル.gguf"
    model.parent.mkdir()
    shutil.copy(reference_model(), model)
    done = bench.pytest(
        *("-m", "long", "--ctx", "2048", "--repeats", "3"),
        *("--remeasure", "0", "--results=結果 一", "--baselines=基準 値", "--save-slots"),
        *(f"--model={model}", "--label=夜 間", "--report=報告 書.html"),
        env={"HARNESS_API_KEY": KEY},
    )
    assert done.code == 0, done.text
    folder = bench.root / "結果 一"
    (record,) = folder.glob("*.jsonl")
    assert "参照 モデル.gguf" in record.read_text(encoding="utf-8")
    assert (bench.root / "報告 書.html").stat().st_size > 10_000
    accepted = bench.harness(
        *("baseline", "update", "--results", "結果 一", "--baselines", "基準 値"),
        *("--force", "--reason", "理由"),
    )
    assert accepted.code == 0, accepted.text
    assert len(list((bench.root / "基準 値").rglob("*.json"))) == 1
    files = [p for p in bench.root.rglob("*") if p.is_file()]
    assert KEY not in done.text
    assert not [p for p in files if KEY.encode() in p.read_bytes()]
