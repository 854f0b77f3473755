"""An agent is one async function: train it on this machine, then measure what it learned."""

from recollect import evaluate, train


async def two_pass(task, chats, memory):
    for chunk in task.chunks:
        prompt = f"{task.questions[0].text}\n{chunk}\nMemory: {memory.text}"
        memory.text = (await chats.open("memory").say(prompt, max_tokens=3)).text
    prompts = [f"{q.text}\nMemory: {memory.text}\nAnswer:" for q in task.questions]
    return [(await chats.open("answer").say(p, max_tokens=6)).text for p in prompts]


if __name__ == "__main__":
    small = {"rollout": {"tasks": 8}, "val": {"tasks": 32, "lengths": [1], "length_tasks": 32}}
    result = train("demo", name="own_agent", agent=two_pass, steps=5, **small)
    steps, rewards = result.curve("reward/mean")
    print("reward by step:", [f"{reward:.2f}" for reward in rewards])
    found = evaluate(result, quiet=True).accuracy
    print(f"held-out accuracy {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}], n {found.n}")
