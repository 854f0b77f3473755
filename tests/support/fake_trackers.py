"""Stand-ins for the packages of trackers: their public calls, and a record of what was sent.

What a service keeps outlives a process, so the records outlive a module that is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any


@dataclass
class Kept:
    """One run as a service would keep it."""

    settings: dict[str, Any] = field(default_factory=dict)
    opened: int = 0
    logged: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)

    def scalars(self, name: str) -> list[tuple[int, float]]:
        return [(step, sent[name]) for step, sent in self.logged if name in sent]

    def steps(self) -> list[int]:
        return [step for step, sent in self.logged if not any(map(is_table, sent.values()))]

    def tables(self, name: str) -> list[tuple[int, Any]]:
        return [(s, sent[name]) for s, sent in self.logged if is_table(sent.get(name))]


def is_table(value: Any) -> bool:
    return isinstance(value, Table)


class Table:
    def __init__(self, columns: list[str] | None = None, data: list[list[Any]] | None = None):
        self.columns, self.data = columns or [], data or []

    def add(self, headers: list[str], rows: list[list[Any]]) -> None:  # as echarts has it
        self.columns, self.data = headers, rows


class Service(ModuleType):
    """A package whose runs are told apart by `key`, a setting of `init`."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(name)
        self.key = key
        self.runs: dict[str, Kept] = {}
        self.Table = Table
        self.echarts = SimpleNamespace(Table=Table)

    def init(self, **settings: Any) -> Service:
        self.run = self.runs.setdefault(settings[self.key], Kept())
        self.run.settings, self.run.opened = settings, self.run.opened + 1
        return self

    def log(self, sent: dict[str, Any], step: int) -> None:
        self.run.logged.append((step, sent))

    def finish(self, **how: Any) -> None:
        self.run.ended.append(how)


def wandb() -> Service:
    return Service("wandb", "id")


def swanlab() -> Service:
    return Service("swanlab", "id")


def trackio() -> Service:
    return Service("trackio", "name")


class Mlflow(ModuleType):
    """MLflow's client and entities."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.runs: dict[str, Kept] = {}
        self.experiments: dict[str, str] = {}
        self.entities = ModuleType("mlflow.entities")
        self.entities.Metric = lambda key, value, timestamp, step: (key, value, step)
        self.entities.Param = lambda key, value: (key, value)

    def MlflowClient(self) -> Mlflow:
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        known = self.experiments.get(name)
        return known and SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        id = f"run{len(self.runs)}"
        settings = {"experiment": experiment, "name": run_name, "tags": dict(tags), "params": {}}
        self.runs[id] = Kept(settings, 1)
        return SimpleNamespace(info=SimpleNamespace(run_id=id))

    def update_run(self, id: str, status: str) -> None:
        self.runs[id].opened += 1

    def log_batch(self, id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(params) <= 100 and len(metrics) <= 1000
        self.runs[id].settings["params"] |= dict(params)
        for step in sorted({step for _name, _value, step in metrics}):
            sent = {name: value for name, value, at in metrics if at == step}
            self.runs[id].logged.append((step, sent))

    def log_dict(self, id: str, data: dict[str, Any], path: str) -> None:
        name, _, step = path.removesuffix(".json").partition("/")
        table = Table(data["columns"], data["data"])
        self.runs[id].logged.append((int(step), {name: table}))

    def get_run(self, id: str) -> Any:
        return SimpleNamespace(data=SimpleNamespace(tags=self.runs[id].settings["tags"]))

    def set_tag(self, id: str, name: str, value: str) -> None:
        self.runs[id].settings["tags"][name] = value

    def set_terminated(self, id: str, status: str) -> None:
        self.runs[id].ended.append(status)


FAKES = {"wandb": wandb, "swanlab": swanlab, "trackio": trackio, "mlflow": Mlflow}


def install(monkeypatch: Any, name: str) -> Any:
    """Put a fake in the place of a package."""
    fake = FAKES[name]()
    monkeypatch.setitem(__import__("sys").modules, name, fake)
    if name == "mlflow":
        monkeypatch.setitem(__import__("sys").modules, "mlflow.entities", fake.entities)
    return fake
