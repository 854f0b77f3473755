"""A reward of your own: right answers, and a price for every word of the last memory."""

from dataclasses import dataclass, replace

from recollect import AnswerReward, Episode, Score, TextMemory, train


@dataclass(frozen=True)
class Short:
    price: float = 0.1

    async def __call__(self, episode: Episode, memory: TextMemory) -> Score:
        score = await AnswerReward()(episode, memory)
        words = len(memory.text.split())
        parts = {**score.parts, "words": words}  # shown as score/words in the metrics
        return replace(score, reward=score.reward - self.price * words, contexts=(), parts=parts)


if __name__ == "__main__":
    small = {"rollout": {"tasks": 8}, "val": {"tasks": 32, "lengths": [1], "length_tasks": 32}}
    result = train("demo", name="own_reward", reward=Short(), steps=5, **small, quiet=True)
    for row in result.metrics[1:]:
        right, words = row["score/answer"], row["score/words"]
        print(f"step {row['step']}: right {right:.2f}, words {words:.2f}", end="")
        print(f", reward {row['reward/mean']:.2f}")
