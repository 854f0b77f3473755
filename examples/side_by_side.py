"""Compare agents on the same tasks. A script stands in for the model; give a URL for a real one."""

import re
import sys

from recollect import ScriptedPolicy, evaluate


async def first_chunk(task, chats, memory):
    """A baseline of your own: read the first chunk, and nothing else."""
    asked = [f"{task.chunks[0]}\n{question.text}" for question in task.questions]
    return [(await chats.open("answer").say(text, max_tokens=64)).text for text in asked]


def reader(prompt: str) -> str:
    """Find the latest sentence about what is asked, keep it, and answer with its last word."""
    what, who = re.findall(r"favourite (\w+) that (\w+) named", prompt)[-1]
    known = [s for s in re.findall(r"[A-Z][^.?]*\.", prompt) if f" {what} " in s and who in s]
    return rf"{known[-1]} \boxed{{{known[-1].split()[-1][:-1]}}}" if known else "Nothing yet."


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedPolicy.model(reader)
    agents = ["fold", "rag", "full_context", first_chunk]
    result = evaluate(tasks="recall@1k", agents=agents, model=model, n=16, quiet=True)
    for (tasks, agent), score in result.scores.items():
        interval = f"[{score.low:.3f}, {score.high:.3f}]"
        print(f"{tasks}  {agent:<14} {score.mean:.3f} {interval}  n {score.n}")
    print(f"report in {result.report}")
