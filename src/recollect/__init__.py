"""Recollect: train and evaluate LLM memory agents with reinforcement learning.

Everything below can be imported from here. Each name is loaded when it is first used, so
`import recollect` takes milliseconds and never imports torch.
"""

TYPE_CHECKING = False  # a type checker takes it as true; importing `typing` would take longer
if TYPE_CHECKING:
    from recollect.accuracy import Accuracy as Accuracy
    from recollect.agents.bank import BankAgent as BankAgent
    from recollect.agents.base import Agent as Agent
    from recollect.agents.baselines import ClosedBookAgent as ClosedBookAgent
    from recollect.agents.baselines import FullContextAgent as FullContextAgent
    from recollect.agents.baselines import OracleAgent as OracleAgent
    from recollect.agents.callback import CallbackAgent as CallbackAgent
    from recollect.agents.curator import CuratorAgent as CuratorAgent
    from recollect.agents.fold import FoldAgent as FoldAgent
    from recollect.agents.gated import GatedAgent as GatedAgent
    from recollect.agents.parallel import ParallelAgent as ParallelAgent
    from recollect.agents.rag import RagAgent as RagAgent
    from recollect.agents.recursive import RecursiveAgent as RecursiveAgent
    from recollect.agents.rolling import RollingAgent as RollingAgent
    from recollect.chat.chat import Chat as Chat
    from recollect.chat.chat import Chats as Chats
    from recollect.chat.chat import Model as Model
    from recollect.chat.rendering import Message as Message
    from recollect.chat.rendering import system as system
    from recollect.chat.rendering import user as user
    from recollect.chat.tool_loop import converse as converse
    from recollect.chat.tools import Limits as Limits
    from recollect.chat.tools import Tool as Tool
    from recollect.chat.tools import ToolBox as ToolBox
    from recollect.chat.tools import tool as tool
    from recollect.commands.api import evaluate as evaluate
    from recollect.commands.api import preset as preset
    from recollect.commands.api import train as train
    from recollect.commands.results import EvalResult as EvalResult
    from recollect.commands.results import HeldOut as HeldOut
    from recollect.commands.results import TrainResult as TrainResult
    from recollect.config.train import TrainConfig as TrainConfig
    from recollect.errors import AgentError as AgentError
    from recollect.errors import UserError as UserError
    from recollect.memory.base import Memory as Memory
    from recollect.memory.corpus import Corpus as Corpus
    from recollect.memory.entries import Draft as Draft
    from recollect.memory.store import Store as Store
    from recollect.memory.text import TextMemory as TextMemory
    from recollect.models.connect import connect as connect
    from recollect.policies.scripted import ScriptedPolicy as ScriptedPolicy
    from recollect.rewards.answers import AnswerReward as AnswerReward
    from recollect.rewards.base import Reward as Reward
    from recollect.rewards.base import Score as Score
    from recollect.rollout import Rollout as Rollout
    from recollect.tasks.base import TaskFamily as TaskFamily
    from recollect.types import Episode as Episode
    from recollect.types import MemoryOp as MemoryOp
    from recollect.types import Question as Question
    from recollect.types import Sampling as Sampling
    from recollect.types import Task as Task

    __version__: str

__all__ = [
    "Accuracy",
    "Agent",
    "AgentError",
    "AnswerReward",
    "BankAgent",
    "CallbackAgent",
    "Chat",
    "Chats",
    "ClosedBookAgent",
    "Corpus",
    "CuratorAgent",
    "Draft",
    "Episode",
    "EvalResult",
    "FoldAgent",
    "FullContextAgent",
    "GatedAgent",
    "HeldOut",
    "Limits",
    "Memory",
    "MemoryOp",
    "Message",
    "Model",
    "OracleAgent",
    "ParallelAgent",
    "Question",
    "RagAgent",
    "RecursiveAgent",
    "Reward",
    "RollingAgent",
    "Rollout",
    "Sampling",
    "Score",
    "ScriptedPolicy",
    "Store",
    "Task",
    "TaskFamily",
    "TextMemory",
    "Tool",
    "ToolBox",
    "TrainConfig",
    "TrainResult",
    "UserError",
    "__version__",
    "connect",
    "converse",
    "evaluate",
    "preset",
    "system",
    "tool",
    "train",
    "user",
]

_HOMES = {
    "accuracy": ("Accuracy",),
    "agents.bank": ("BankAgent",),
    "agents.base": ("Agent",),
    "agents.baselines": ("ClosedBookAgent", "FullContextAgent", "OracleAgent"),
    "agents.callback": ("CallbackAgent",),
    "agents.curator": ("CuratorAgent",),
    "agents.fold": ("FoldAgent",),
    "agents.gated": ("GatedAgent",),
    "agents.parallel": ("ParallelAgent",),
    "agents.rag": ("RagAgent",),
    "agents.recursive": ("RecursiveAgent",),
    "agents.rolling": ("RollingAgent",),
    "chat.chat": ("Chat", "Chats", "Model"),
    "chat.rendering": ("Message", "system", "user"),
    "chat.tool_loop": ("converse",),
    "chat.tools": ("Limits", "Tool", "ToolBox", "tool"),
    "commands.api": ("evaluate", "preset"),
    "commands.results": ("EvalResult", "HeldOut", "TrainResult"),
    "config.train": ("TrainConfig",),
    "errors": ("AgentError", "UserError"),
    "memory.base": ("Memory",),
    "memory.corpus": ("Corpus",),
    "memory.entries": ("Draft",),
    "memory.store": ("Store",),
    "memory.text": ("TextMemory",),
    "models.connect": ("connect",),
    "policies.scripted": ("ScriptedPolicy",),
    "rewards.answers": ("AnswerReward",),
    "rewards.base": ("Reward", "Score"),
    "rollout": ("Rollout",),
    "tasks.base": ("TaskFamily",),
    "types": ("Episode", "MemoryOp", "Question", "Sampling", "Task"),
}
_MODULES = {name: f"recollect.{module}" for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", "train", *_MODULES]


def __getattr__(name: str) -> object:
    """Load a name from its module when it is first used."""
    if name == "__version__":
        from recollect.packaging import version

        found: object = version()
    elif name in __all__:
        from importlib import import_module

        # The package `train` can be called, and is `recollect.train`.
        package = import_module(_MODULES.get(name, "recollect.train"))
        found = getattr(package, name) if name in _MODULES else package
    else:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List everything that can be imported from here."""
    return sorted({*globals(), *__all__})
