"""Loading a folder runs nothing that lies in it: no modelling code, no pickles, no download."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from recollect.config.engine import ModelConfig
from recollect.errors import UserError
from recollect.memory.embeddings.folder import FolderEmbedder
from recollect.models.model import load_model
from tests.support.tiny import tiny_model
from tests.support.warm import Warm

ROOT = Path(__file__).parents[2]
NEEDED = {
    "from_pretrained": {"trust_remote_code": False, "local_files_only": True},
    "from_config": {"trust_remote_code": False},
}
WEIGHTS = {"use_safetensors": True}
"""Needed as well where a model, and not a tokenizer or a configuration, is loaded."""
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}

UNSAFE_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}
RENAMED = {"from_pretrained", "Unpickler", "safe_globals", "unsafe_load"}


def sources() -> list[Path]:
    return sorted(
        p
        for part in ("src", "scripts", "benchmarks", "examples")
        for p in (ROOT / part).rglob("*.py")
    )


def wrong_loads(path: Path) -> Iterator[str]:
    file = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            continue
        place = f"{file}:{node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if found := PICKLES.intersection(name.partition(".")[0] for name in named):
                yield f"{place}: imports {found}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("eval", "exec"):
                yield f"{place}: {node.func.id} runs what it reads"
            if node.func.id in RENAMED:
                yield f"{place}: call {node.func.id} by its module's name, so that it is found"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, owner = node.func.attr, ast.unparse(node.func.value)
        wanted = dict(NEEDED.get(name, {}))
        if name == "from_pretrained" and "Model" in owner:
            wanted |= WEIGHTS
        if owner == "torch" and name == "load":
            wanted = {"weights_only": True}
        if owner == "np" and name == "load":
            wanted = {"allow_pickle": False}
        given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        where = f"{place}: {owner}.{name}"
        if owner == "yaml" and name in UNSAFE_YAML:
            loaders = [ast.unparse(k.value) for k in node.keywords if k.arg == "Loader"]
            if not loaders or not all("Safe" in loader for loader in loaders):
                yield f"{where} builds whatever objects the file names"
        if name in ("read_pickle", "load_module", "unsafe_load"):
            yield f"{where} runs what it reads"
        if owner in PICKLES and name in ("load", "loads", "Unpickler"):
            yield f"{where} reads a pickle"
        for setting, value in wanted.items():
            if given.get(setting, "missing") != value:
                yield f"{where} without {setting}={value}"


def test_every_load_in_the_repository_says_that_it_runs_nothing():
    assert len(sources()) > 100
    assert [line for path in sources() for line in wrong_loads(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "AutoModel.from_pretrained(f, local_files_only=True, trust_remote_code=False)",
        "AutoTokenizer.from_pretrained(f, local_files_only=True)",
        "AutoConfig.from_pretrained(f, local_files_only=True, trust_remote_code=True)",
        "torch.load(f)",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "torch.load(f, weights_only=False)",
        "pickle.load(f)",
        "import pickle",
        "from pickle import loads",
        "yaml.load(f)",
        "yaml.load(f, Loader=yaml.Loader)",
        "yaml.unsafe_load(f)",
        "eval(text)",
        "pd.read_pickle(f)",
    ],
)
def test_the_search_finds_a_load_that_does_not(line, monkeypatch, tmp_path):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "a.py").write_text(line)
    assert list(wrong_loads(tmp_path / "a.py"))


ATTACK = """
from pathlib import Path
Path(__file__).with_name("RAN").touch()
Path({mark!r}).touch()
from transformers import {base}
class Mine({base}):
    model_type = "mine"
"""


def with_code(folder: Path, mark: Path, model_type: str) -> Path:
    """Let every part of a folder name code of its own."""
    for part, base in (
        ("config", "PretrainedConfig"),
        ("tokenizer_config", "PreTrainedTokenizerFast"),
    ):
        (folder / f"{part}_code.py").write_text(ATTACK.format(mark=str(mark), base=base))
        path = folder / f"{part}.json"
        told = json.loads(path.read_text())
        named = f"{part}_code.Mine"
        told["auto_map"] = (
            {"AutoConfig": named, "AutoModelForCausalLM": named, "AutoModel": named}
            if part == "config"
            else {"AutoTokenizer": [None, named]}
        )
        if part == "config":
            told["model_type"] = model_type
        path.write_text(json.dumps(told))
    return folder


def test_a_folder_with_code_of_its_own_is_refused_in_one_line_and_runs_nothing(tmp_path):
    """Even where somebody's "y" waits on the standard input, for transformers would ask."""
    folder = with_code(tiny_model(tmp_path / "model"), tmp_path / "ran", "mine")
    (tmp_path / "yes").write_text("y\n" * 9)
    done = Warm(["eval", "demo", "--model.path", str(folder)], stdin=tmp_path / "yes")
    _out, err = done.communicate(timeout=120)
    assert done.returncode == 2 and not (tmp_path / "ran").exists()
    assert "code of its own" in err and "Traceback" not in err
    assert len(err.strip().splitlines()) <= 2, err


def test_code_beside_a_model_that_transformers_knows_is_left_alone(tmp_path):
    folder = with_code(tiny_model(tmp_path / "model"), tmp_path / "ran", "llama")
    assert type(load_model(ModelConfig(str(folder))).network).__name__ == "LlamaForCausalLM"
    assert not (tmp_path / "ran").exists()


def with_pickled_weights(folder: Path) -> Path:
    weights = folder / "model.safetensors"
    from safetensors.torch import load_file

    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    return folder


def test_pickled_weights_are_refused_in_one_line(tmp_path):
    folder = with_pickled_weights(tiny_model(tmp_path / "model"))
    with pytest.raises(UserError, match="are pickled") as caught:
        load_model(ModelConfig(str(folder)))
    assert "\n" not in caught.value.what


def test_an_embedder_runs_no_code_either(tmp_path):
    coded = with_code(tiny_model(tmp_path / "coded"), tmp_path / "ran", "mine")
    pickled = with_pickled_weights(tiny_model(tmp_path / "pickled"))
    for folder in (coded, pickled):
        with pytest.raises(UserError, match=r"are pickled|cannot be loaded") as caught:
            asyncio.run(FolderEmbedder(str(folder)).embed(["text"]))
        assert "\n" not in caught.value.what
    assert not (tmp_path / "ran").exists()
