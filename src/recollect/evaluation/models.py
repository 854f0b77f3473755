"""The models that are measured: a server's, or a folder's, and what names them in results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from recollect.chat.chat import Model
from recollect.config.starting import is_run, run_of_checkpoint, starting_point, trained
from recollect.errors import UserError
from recollect.evaluation.options import EvalOptions, split_names
from recollect.foreign import storable
from recollect.packaging import install
from recollect.types import Sampling

EDGE = 1 << 20
"""Bytes at either end of a file that are hashed: weights of a hundred gigabytes take no minutes."""


@dataclass(frozen=True)
class Opened:
    """Models by role, and what must be known to ask the same ones again."""

    models: dict[str, Model]
    facts: dict[str, Any]
    """By role: the model's id, where it is, and for a folder its fingerprint."""
    own: dict[str, dict[str, Model]] = field(default_factory=dict)
    """Models that a run among the agents brings itself, by agent and role ..."""
    own_facts: dict[str, str] = field(default_factory=dict)
    """... and what tells them from others."""


def open_models(options: EvalOptions) -> Opened:
    """Open the model of both roles, and another one for answers where asked for."""
    memory, facts = _open(options.model, options)
    answer, answer_facts = memory, facts
    if options.answer_model:
        answer, answer_facts = _open(options.answer_model, options)
    roles = {"memory": memory, "answer": answer}
    runs = [name for name in split_names(options.agents) if is_run(name)]
    found = {name: _of_run(name, options) for name in runs if options.run_models}
    return Opened(
        roles,
        {"memory": facts, "answer": answer_facts},
        {name: models for name, (models, _) in found.items()},
        {name: about for name, (_, about) in found.items()},
    )


def _of_run(name: str, options: EvalOptions) -> tuple[dict[str, Model], str]:
    """Open the model that a run trained, and those that were fixed beside it, in their roles."""
    try:
        from recollect.train.roles import Roles
    except ImportError as error:
        raise UserError(f"a run's model needs torch ({error})", install("local")) from error
    config = trained(starting_point(name))
    place = {key: getattr(options, key) for key in ("device", "threads", "cache_gib", "drafts")}
    model = replace(config.model, **place)
    roles = Roles.open(config.models, model)
    models = roles.sampling(options.temperature, options.top_p)
    about = f" with its model {fingerprint(Path(config.model.path))}"
    about += "".join(f", {r} {getattr(config.models, r)}" for r in config.models.fixed)
    return {role: replace(one, trainable=False) for role, one in models.items()}, about


def _open(where: str, options: EvalOptions) -> tuple[Model, dict[str, Any]]:
    sampling = Sampling(temperature=options.temperature, top_p=options.top_p)
    if not where:
        raise UserError("there is no model to ask", "name a server or a folder with --model")
    if where.startswith(("http://", "https://")):
        return _served(where, options, sampling)
    return _local(where, options, sampling)


def _served(url: str, options: EvalOptions, sampling: Sampling) -> tuple[Model, dict[str, Any]]:
    from recollect.models.connect import connect
    from recollect.policies.client import Endpoint
    from recollect.policies.estimated import COUNTED, EstimatedTokenizer
    from recollect.policies.served import EndpointPolicy, EndpointSpeaker

    endpoint = Endpoint(url, options.served_model, concurrency=max(256, options.concurrency))
    tokenizer = options.tokenizer or None
    model = connect(endpoint, tokenizer=tokenizer, sampling=sampling, window=options.window)
    speech = "tokens" if model.exact else "messages"
    policy = model.policy
    assert isinstance(policy, EndpointPolicy | EndpointSpeaker)
    facts = {"id": policy.model, "url": url, "speech": speech, "window": model.window}
    if isinstance(model.renderer.tokenizer, EstimatedTokenizer):
        facts["tokens"] = COUNTED
    return model, facts


def _local(path: str, options: EvalOptions, sampling: Sampling) -> tuple[Model, dict[str, Any]]:
    try:
        from recollect.models.tokenizer import check_folder
        from recollect.sampler.choice import open_sampler
        from recollect.train.source import ModelSource, find_source
    except ImportError as error:
        raise UserError(
            f"a model folder needs torch and transformers ({error})",
            f"{install('local')}, or name a server with --model http://...",
        ) from error
    from recollect.chat.rendering import Renderer

    of_run = False
    if run_of_checkpoint(path):
        source = find_source(path)
    else:
        folder = check_folder(path, "model")
        place = folder.resolve()
        of_run = place.name == "model" and is_run(str(place.parent))
        source = ModelSource(place.name, folder)
    loaded = source.load(options.device, options.threads)
    policy = open_sampler(loaded, options.cache_gib, drafts=options.drafts)
    window = min(loaded.window, options.window or loaded.window)
    model = Model(policy, Renderer(loaded.tokenizer), False, sampling, window)
    return model, {
        "id": source.name,
        **({"run": place.parent.name} if of_run else {}),
        "folder": path,
        "fingerprint": fingerprint(source.checkpoint or source.folder),
        "window": window,
        "device": str(loaded.device),
    }


def fingerprint(folder: Path) -> str:
    """Hash the names, sizes and both ends of the files that make a model."""
    digest = sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".json", ".jinja", ".safetensors", ".model", ".txt"):
            continue
        size = path.stat().st_size
        digest.update(storable(f"{path.name}:{size}:").encode())
        with open(path, "rb") as file:
            digest.update(file.read(EDGE))
            file.seek(max(0, size - EDGE))
            digest.update(file.read(EDGE))
    return digest.hexdigest()[:16]
