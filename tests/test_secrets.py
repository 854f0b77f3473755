"""Keys and passwords reach no file and no screen."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.errors import BoundaryError, UserError
from recollect.files import Lines, write_text
from recollect.foreign import redact, shown
from recollect.policies.client import Endpoint
from recollect.runs.run import Run
from recollect.runs.trackers import _sent
from recollect.types import Context, Episode, Task
from tests.commands.test_exit_status import answering, evaluation

ROOT = Path(__file__).parents[1]
KEY = "k3y-" + "Zq8vT1mX" * 4  # not a secret


@pytest.fixture(autouse=True)
def keyed(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MY_SERVICE_TOKEN", 'a"b\\c' + KEY)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("DB_PASSWORD", "12345678")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        (f"no such key: {KEY}!", "no such key: [OPENAI_API_KEY]!"),
        (json.dumps({"said": 'a"b\\c' + KEY}), '{"said": "[MY_SERVICE_TOKEN]"}'),
        ("http://me:pass@host:1/v1", "http://[hidden]@host:1/v1"),
        ("https://h/v1?a=1&api_key=xyz&b=2", "https://h/v1?a=1&api_key=[hidden]&b=2"),
        ("https://h/v1?access_token=xyz", "https://h/v1?access_token=[hidden]"),
        ("Authorization: Bearer abcdefgh1", "Authorization: Bearer [hidden]"),
        ("false, 0.12345678 and me@home.org", "false, 0.12345678 and me@home.org"),
    ],
)
def test_secrets_are_taken_out_of_text(text, safe):
    assert redact(text) == safe
    assert KEY not in shown(text)


def test_every_writer_takes_them_out(tmp_path):
    write_text(tmp_path / "a.md", f"it said {KEY}")
    lines = Lines(tmp_path / "b.jsonl")
    lines.append({"said": f"{KEY}"})
    lines.close()
    with Run.open(tmp_path / "run", {"model": {"url": f"http://h/?api_key={KEY}"}}) as run:
        context = Context("memory", "memory", True, [1], [], None, None, KEY)
        task = Task("t", (), (), "made", {"said": KEY})
        run.write_episodes(1, "val", [Episode(task, 0, [context])])
    held = b"".join(
        gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()
        for p in tmp_path.rglob("*")
        if p.is_file()
    )
    assert KEY.encode() not in held and held.count(b"[OPENAI_API_KEY]") >= 4
    assert KEY not in json.dumps(_sent({"url": f"http://h/{KEY}"}))
    assert KEY not in str(UserError(f"refused {KEY}", f"do not send {KEY}"))
    assert KEY not in BoundaryError("policy", ValueError(KEY)).failure.message


@pytest.mark.parametrize("url", ["http://me:pass@h:1/v1", "http://h:1/v1?api_key=abc"])
def test_credentials_in_an_address_are_refused_with_the_fix(url, capsys, tmp_path):
    with pytest.raises(UserError, match=r"carries a password.*\n  fix: .*MY_KEY") as caught:
        Endpoint(url, api_key_env="MY_KEY")
    assert "pass@" not in str(caught.value) and "abc" not in str(caught.value)
    for arguments in (
        evaluation(url, tmp_path / "out"),
        ["eval", "demo", "--models.answer", url],
        ["judge-check", "--url", url],
    ):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert "carries a password" in said.err
        assert "pass@" not in said.err + said.out and "abc" not in said.err + said.out
    assert not (tmp_path / "out").exists()


def test_a_key_that_a_server_repeats_reaches_no_file_and_no_screen(capsys, tmp_path):
    def repeat(call: int):
        if call == 1:
            return 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}
        message = {"content": f"your key is {KEY}"}
        return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}

    with answering(repeat) as (url, _calls):
        assert main(evaluation(url, tmp_path)) == 0
    assert main(["report", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "[OPENAI_API_KEY]" in said.out and KEY not in said.out + said.err
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_the_traceback_of_a_bug_shows_no_key():
    code = (
        "import sys; from recollect.__main__ import crash\n"
        "sys.excepthook = crash; raise ValueError(sys.argv[1])"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, KEY], env=env, capture_output=True, text=True
    )
    assert "ValueError: [OPENAI_API_KEY]" in done.stderr and KEY not in done.stderr


def test_the_scan_finds_secrets_and_names_none(tmp_path):
    scan = [sys.executable, str(ROOT / "scripts/secret_scan.py")]
    path = tmp_path / "a.py"
    for secret in (
        "sk-" + "a1B2c3D4" * 4,
        "hf_" + "aB3" * 12,
        "ghp_" + "aB3" * 12,
        "AKIA" + "ABCDEFGH12345678",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "https://me:" + "hunter22" + "@host/",
        'api_key = "' + "Zq8vT1mXw2Ls9KdP4RtY6UbN" + '"',
    ):
        path.write_text(f"x = 1\n# {secret}\n")
        done = subprocess.run([*scan, str(path)], capture_output=True, text=True)
        assert done.returncode == 1 and f"{path}:2" in done.stdout, secret
        assert secret not in done.stdout
    path.write_text('key = os.environ["OPENAI_API_KEY"]\nurl = "http://user@host/"\n')
    assert subprocess.run([*scan, str(path)], capture_output=True).returncode == 0


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout")
def test_no_tracked_file_holds_a_secret():
    scan = [sys.executable, "scripts/secret_scan.py"]
    done = subprocess.run(scan, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
