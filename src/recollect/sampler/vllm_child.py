"""vLLM in a process of its own, asked through a pipe: one line of JSON for a request or an answer.

    python -m recollect.runs.child FD recollect.sampler.vllm_child READ WRITE

The first line has the settings; vLLM is imported before they come. Nothing listens at a port, and
nothing is unpickled. What vLLM prints goes to standard error; the answers have a pipe of their own.
Knows nothing of training.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import sys
import time
from typing import Any

import numpy as np

from recollect.foreign import shown


class Child:
    """Answer requests until the other end of the pipe is closed."""

    def __init__(self, engine: Any, writing: int) -> None:
        self.engine = engine
        self._writing = writing
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, reading: int, seconds: dict[str, float]) -> None:
        """Say how long the start took, then take requests; each is answered when it is done."""
        lines = asyncio.StreamReader(limit=1 << 30)
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(reading, "rb", buffering=0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), pipe)
        self.say({"id": 0, "seconds": seconds})
        while line := await lines.readline():
            request = json.loads(line)
            number = request["id"]
            if request["do"] == "cancel":
                if task := self._tasks.get(number):
                    task.cancel()
                continue
            self._tasks[number] = asyncio.create_task(self._answer(number, request))

    async def _answer(self, number: int, request: dict[str, Any]) -> None:
        try:
            self.say({"id": number, **await getattr(self, f"do_{request['do']}")(request)})
        except Exception as error:  # the other process decides what it means
            if self.engine.errored:  # nothing will be answered any more
                print(shown(f"{type(error).__name__}: {error}"), file=sys.stderr, flush=True)
                os._exit(1)
            self.say({"id": number, "error": f"{type(error).__name__}: {error}"})
        finally:
            del self._tasks[number]

    def say(self, answer: dict[str, Any]) -> None:
        """Write one line."""
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(self._writing, data) :]

    async def do_sample(self, request: dict[str, Any]) -> dict[str, Any]:
        """Continue a prompt."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        ids = np.frombuffer(base64.b64decode(request["prompt"]), np.int32).tolist()
        params = SamplingParams(
            max_tokens=request["max_tokens"],
            temperature=request["temperature"],
            top_p=request["top_p"],
            seed=request["seed"],
            stop=request["stop"],
            stop_token_ids=request["end_ids"],
            ignore_eos=True,  # the end tokens are those of our tokenizer
            include_stop_str_in_output=True,
            detokenize=bool(request["stop"]),
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,  # a list of numbers, not an object for each
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        answer: dict[str, Any] = {}
        name = str(request["id"])
        async for output in self.engine.generate({"prompt_token_ids": ids}, params, name):
            (one,) = output.outputs
            drawn, said = list(one.token_ids), one.logprobs
            logprobs = [float(said.logprobs[start]) for start in said.start_indices]
            answer = {"token_ids": drawn, "logprobs": logprobs, "reason": one.finish_reason}
        return answer

    async def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take the weights in a folder, and forget what was computed with others."""
        await self.engine.collective_rpc("take_weights", args=(request["folder"],))
        return await self.do_forget(request)

    async def do_forget(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Forget keys and values."""
        if await self.engine.reset_prefix_cache() is False:
            raise RuntimeError("vLLM did not forget the keys of the weights before")
        return {}

    async def do_sleep(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Give the GPU's memory back; the weights wait in the host's."""
        await self.engine.sleep(level=1)
        return {}

    async def do_wake(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Take the memory again."""
        await self.engine.wake_up()
        return {}


async def main(reading: int, writing: int, imported: float) -> None:
    """Start vLLM with the settings that come first, and answer until nobody asks."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    settings = first_line(reading)
    if not settings:
        return
    started = time.perf_counter()
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**json.loads(settings)))
    gc.collect()
    gc.freeze()  # what was imported is not looked through again while tokens are drawn
    seconds = {"import": imported, "engine": time.perf_counter() - started}
    try:
        await Child(engine, writing).serve(reading, seconds)
    finally:
        engine.shutdown()


def first_line(reading: int) -> bytes:
    """Read to the end of a line, and no further: the rest is for the event loop."""
    line = b""
    while (byte := os.read(reading, 1)) not in (b"", b"\n"):
        line += byte
    return line


if __name__ == "__main__":
    os.dup2(2, 1)  # before anything is imported that prints
    began = time.perf_counter()
    import vllm.v1.engine.async_llm  # noqa: F401

    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), time.perf_counter() - began))
