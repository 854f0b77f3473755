"""The roles of a run: one model samples and learns, fixed ones speak in the other roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer, Tokenizer
from recollect.config.engine import ModelConfig
from recollect.config.roles import ROLES, ModelsConfig
from recollect.config.rollout import RolloutConfig
from recollect.models.connect import connect, share
from recollect.models.copies import Snapshot
from recollect.models.model import LoadedModel, load_model
from recollect.policies.client import Client
from recollect.policies.estimated import EstimatedTokenizer
from recollect.policies.served import EndpointPolicy, EndpointSpeaker
from recollect.sampler.choice import Sampler, open_sampler
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.paged import PagedPolicy
from recollect.sampler.vllm_policy import VllmOptions, VllmPolicy
from recollect.sampler.vllm_process import VllmProcess
from recollect.types import Sampling

LEAST_SEQUENCES = 128
"""What vLLM samples at once at least: held-out tasks may be more than a step's episodes."""


@dataclass
class Roles:
    """The model of every role."""

    models: dict[str, Model]
    trained: LoadedModel | None
    """None if all roles are fixed."""
    notes: list[str]
    """One line for every role, and what else a person should know; see `said`."""
    samplers: list[Sampler] = field(default_factory=list)
    snapshot: Snapshot | None = None
    """What samples in place of the model that learns, where both are at work at once."""
    vllm: VllmPolicy | None = None
    """What samples for the model that learns, where the settings say so."""
    _settings: ModelsConfig = ModelsConfig()

    @classmethod
    def open(
        cls, models: ModelsConfig, model: ModelConfig, rollout: RolloutConfig | None = None
    ) -> Roles:
        """Load the model that learns, if one does, and connect to the fixed ones.

        `rollout` says how it samples while it learns.
        """
        roles = cls({}, None, [], _settings=models)
        found: dict[str, Model] = {}
        if models.learning:
            found["trainable"] = roles._learning(model, rollout or RolloutConfig())
        known: list[Tokenizer] = [roles.trained.tokenizer] if roles.trained else []
        for role in ROLES:
            key = getattr(models, role)
            own = (key, getattr(models, f"{role}_id"))
            if role in models.learning:
                roles.notes.append(f"{role}: TRAINABLE {model.path}")
                roles.models[role] = found["trainable"]
                continue
            if str(own) not in found:
                found[str(own)] = roles._fixed(models, model, role, known)
            speaker = roles.models[role] = found[str(own)]
            known = [*known, speaker.renderer.tokenizer]
            roles.notes += _described(role, speaker, key)
        roles._keep_batches()
        return roles

    def _learning(self, model: ModelConfig, rollout: RolloutConfig) -> Model:
        """Load the model that learns, and put a sampler beside it.

        Our own sampler needs a copy of weights that are updated meanwhile; vLLM has one anyway.
        """
        if rollout.sampler == "vllm":
            self.trained, self.vllm = open_vllm(model, rollout)
            loaded, policy, window = self.trained, self.vllm, self.vllm.window
            return Model(policy, Renderer(loaded.tokenizer), True, window=window)
        self.trained = load_model(model)
        if rollout.ahead:
            self.snapshot = Snapshot.of(self.trained)
        sampled = self.snapshot.model if self.snapshot else self.trained
        return self._sampled(sampled, True, model)

    def _keep_batches(self) -> None:
        """On a CPU, let nothing that is computed depend on when a server answers."""
        clients = self.clients
        for sampler in self.samplers:
            if clients and isinstance(sampler, LocalPolicy) and sampler.model.device.type == "cpu":
                sampler.hold = lambda: any(client.in_flight for client in clients)

    def _sampled(self, loaded: LoadedModel, trainable: bool, model: ModelConfig) -> Model:
        policy = open_sampler(loaded, model.cache_gib, say=self.notes.append, drafts=model.drafts)
        self.samplers.append(policy)
        return Model(policy, Renderer(loaded.tokenizer), trainable, window=loaded.window)

    def _fixed(
        self, models: ModelsConfig, model: ModelConfig, role: str, known: list[Tokenizer]
    ) -> Model:
        if models.is_served(role):
            return served(models, role, known)
        folder = Path(getattr(models, role)).expanduser()
        plain = replace(model, path=str(folder), lora=replace(model.lora, rank=0))
        loaded = load_model(plain)
        loaded.tokenizer = share(loaded.tokenizer, known)  # type: ignore[assignment]
        loaded.network.requires_grad_(False)
        return self._sampled(loaded, False, model)

    def sampling(self, temperature: float, top_p: float) -> dict[str, Model]:
        """Return the models with their sampling; fixed ones may have their own."""
        return with_sampling(
            self._settings, self.models, Sampling(temperature=temperature, top_p=top_p)
        )

    @property
    def window(self) -> int:
        """Tokens that every model's context holds."""
        return min(model.window for model in self.models.values())

    def said(self) -> list[str]:
        """Return the notes since this was last asked; a sampler may have one at any step."""
        found, self.notes[:] = self.notes[:], []
        return found

    def refresh(self) -> None:
        """Let samplers work with the weights as they are now: some keep copies of their own."""
        if self.snapshot:
            self.snapshot.refresh()
        if self.vllm:
            self.vllm.refresh()
        self.reset()

    def reset(self) -> None:
        """Forget what samplers keep between calls."""
        for sampler in self.samplers:
            sampler.reset()
        if self.vllm:
            self.vllm.reset()

    @property
    def clients(self) -> list[Client]:
        """The clients of servers, each once."""
        return clients_of(self.models.values())

    def failed_calls(self) -> Counter[str]:
        """Count, since this was last asked, the failed attempts of calls to servers by kind."""
        return failures_of(self.clients)

    def sampled(self) -> Counter[str]:
        """Count, since this was last asked, the steps of samplers on a GPU, and their tokens."""
        paged = [sampler for sampler in self.samplers if isinstance(sampler, PagedPolicy)]
        return sum((sampler.counts() for sampler in paged), Counter())

    def close(self) -> None:
        """Let go of the servers, and end vLLM."""
        for client in self.clients:
            client.close()
        if self.vllm:
            self.vllm.close()


def open_vllm(model: ModelConfig, rollout: RolloutConfig) -> tuple[LoadedModel, VllmPolicy]:
    """Load the model that learns while vLLM is imported, then start vLLM with its weights."""
    options = VllmOptions(
        model.cache_gib,
        min(rollout.concurrency, max(LEAST_SEQUENCES, rollout.tasks * rollout.n), 1024),
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        sleeps=rollout.sleep,
    )
    process = VllmProcess()
    try:
        loaded = load_model(model)
        return loaded, VllmPolicy(loaded, model.path, options, process)
    except BaseException:
        process.close()
        raise


def served(models: ModelsConfig, role: str, known: Sequence[Tokenizer]) -> Model:
    """Connect to the server of a fixed model."""
    return connect(
        models.endpoint(role),
        tokenizer=getattr(models, f"{role}_tokenizer"),
        known=known,
        window=getattr(models, f"{role}_window"),
        speech=models.speech,
    )


def with_sampling(
    settings: ModelsConfig, models: Mapping[str, Model], own: Sampling
) -> dict[str, Model]:
    """Set how models sample; fixed ones sample like the one that learns unless set otherwise."""
    fixed = replace(
        own,
        temperature=own.temperature if settings.temperature is None else settings.temperature,
        top_p=own.top_p if settings.top_p is None else settings.top_p,
    )
    return {
        role: replace(model, sampling=own if model.trainable else fixed)
        for role, model in models.items()
    }


def clients_of(models: Iterable[Model]) -> list[Client]:
    """Return the clients of servers, each once."""
    policies = [model.policy for model in models]
    found = [p.client for p in policies if isinstance(p, EndpointPolicy | EndpointSpeaker)]
    return list(dict.fromkeys(found))


def failures_of(clients: Iterable[Client]) -> Counter[str]:
    """Count, since this was last asked, the failed attempts of calls to servers by kind."""
    total: Counter[str] = Counter()
    for client in clients:
        total += client.failures
        client.failures.clear()
    return total


def _described(role: str, model: Model, value: str) -> list[str]:
    """Say who speaks; a server that returns no token ids is worth a second line."""
    if not isinstance(model.policy, EndpointPolicy | EndpointSpeaker):
        return [f"{role}: FIXED {value}"]
    lines = [f"{role}: FIXED {model.policy.name}"]
    if not model.exact:
        lines.append(
            f"{role}: called with messages, because the server takes or returns no tokens that are"
            f" known here; tokens are counted with {_counter(model)}"
        )
    return lines


def _counter(model: Model) -> str:
    tokenizer = model.renderer.tokenizer
    estimated = isinstance(tokenizer, EstimatedTokenizer)
    return "an estimate of three bytes each" if estimated else "another model's tokenizer"
