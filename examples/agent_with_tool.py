"""An agent with settings and a tool: a frozen dataclass, and a function the model may call."""

import asyncio
import json
from dataclasses import dataclass

import recollect
from recollect import AnswerReward, Limits, Question, Rollout, ScriptedPolicy, Task, ToolBox


@dataclass(frozen=True)
class Calculator:
    """Reads everything, and lets the model add numbers up with a tool."""

    max_turns: int = 4  # a setting; on the command line: --agent.max-turns 4

    async def run(self, task, chats, memory):
        @recollect.tool
        def add(numbers: list[float]) -> str:
            """Add numbers up.

            Args:
                numbers: What to add.
            """
            memory.text = f"{sum(numbers):g}"  # every change of the memory is recorded
            return memory.text

        tools = ToolBox([add], Limits(max_assistant_turns=self.max_turns, max_turn_tokens=128))
        chat = chats.open("answer", tools=tools.schemas)
        asked = "\n".join([*task.chunks, task.questions[0].text])
        return [(await recollect.converse(chat, [recollect.user(asked)], tools)).text]


def script(prompt: str) -> str:
    """Stand in for a model: call the tool, then answer with what it returned."""
    if "12.5" in prompt:
        return r"\boxed{12.5}"
    call = {"name": "add", "arguments": {"numbers": [5, 7.5]}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


if __name__ == "__main__":
    task = Task("lunch", ["Soup was 5.", "Bread was 7.5."], (Question("The sum?", ("12.5",)),))
    rollout = Rollout(Calculator(), {"answer": ScriptedPolicy.model(script)}, AnswerReward())
    episode = asyncio.run(rollout.episode(task, 0, ("example",)))
    print(f"answer {episode.answers[0]}, reward {episode.reward}, edits {len(episode.ops)}")
