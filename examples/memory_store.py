"""A store of memories: edit it, search it, fork it, and replay what was done."""

import asyncio

from recollect import Corpus, Draft, Store
from recollect.memory.store import replay

BASE = Corpus.build("diary", [Draft("Ann moved to Rome in May."), Draft("Ann has a cat, Miso.")])


async def main() -> None:
    store = Store(BASE)
    store.add("Ann adopted a second cat, Tofu.", {"source": "agent_output"})
    store.merge(["memory_2", "memory_3"], "Ann has two cats, Miso and Tofu.")
    for hit in await store.search("How many cats does Ann have?", top_k=2, mode="bm25"):
        print(f"{hit.score:.2f}  {hit.entry.id}  {hit.entry.content}")

    trial = store.fork()  # shares the base; costs as much as there are edits
    trial.delete("memory_1")
    print(f"store {len(store)} entries, trial {len(trial)}")

    again = replay(BASE, store.ops)  # operations are plain data
    print("replayed:", again.snapshot() == store.snapshot())
    print("growth:", store.growth())


if __name__ == "__main__":
    asyncio.run(main())
