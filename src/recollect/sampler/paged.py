"""The in-process sampler for a GPU: continuous batching over pages, tokens in recorded bursts.

A cycle is three verbs: admit what waits, read some of the prompts, give every running sequence a
burst of tokens. While the GPU works on a burst the askers run, so their next prompts are ready when
it ends. Prompts that begin alike share pages, within a cycle and across turns. A draw depends on
its request alone; the last bits of what is computed depend on what else is in the batch.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

from recollect.concurrency.many import running_task
from recollect.errors import on_stderr
from recollect.models.copies import SamplerCopy
from recollect.models.model import LoadedModel
from recollect.models.transfer import on_device, put
from recollect.sampler.bursts import Burst
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.extend import Extender, Plan
from recollect.sampler.paged_attention import PagedCache
from recollect.sampler.paged_requests import NONE, PagedRequest, Read, checked
from recollect.sampler.pages import Pages
from recollect.sampler.prefill import Prefill, Runs
from recollect.sampler.prefixes import SharedRows, head_shape
from recollect.sampler.requests import Heard
from recollect.sampler.rows import Ended, Rows, first_picks, slots_of
from recollect.types import Completion, Sampling

PAGE = 32
"""Tokens of one page: prompts share whole pages."""
BURST = 8
"""Tokens between two looks at the askers; no more than a page."""
DRAFTS = 9
"""Tokens that are guessed for a sequence at one step; 0 guesses none."""
ANSWERED = 16
"""Replies handed over at once: an asker works on, and the device may be done before."""


class PagedPolicy:
    """Sample from a loaded model. One event loop, many requests in flight."""

    def __init__(
        self,
        model: LoadedModel,
        max_running: int = 1024,
        prefill_tokens: int = 1 << 16,
        cache_bytes: int = 4 << 30,
        burst: int = BURST,
        drafts: int = DRAFTS,
        fused: bool = True,
        say: Callable[[str], None] = on_stderr,
    ) -> None:
        """`say` gets a note on why tokens cost more than they could, if they do."""
        self.model = model
        self.max_running = max_running
        self.prefill_tokens = prefill_tokens
        self._copy = SamplerCopy.of(model) if model.half and model.device.type == "cuda" else None
        self._network, self._quick = self._copy.model if self._copy else model, False
        shared: SharedRows | None = None
        if fused and self._copy:
            from recollect.sampler.fused_trial import tried

            works = tried(self._network)
            self._network, self._quick = works.network, works.quick
            for note in works.notes:
                say(note)
            if works.shares:
                asking, asked, _width = head_shape(model.network.config)
                shared = SharedRows(max_running, asking // asked, model.device)
        keys = keys_of(self._network)
        bytes_per_token = sum(2 * value.nbytes for _key, value in keys)  # a key may be wider typed
        self._pages = Pages(max(cache_bytes // (bytes_per_token * PAGE), 2), PAGE)
        self._cache = PagedCache(len(keys), keys[0][1], self._pages.count, PAGE)
        self._longest = min(model.window, self._pages.count * PAGE)
        room = max_running * (self._longest // PAGE + 2)
        self._reader = Prefill(self._network, self._cache, max_running, prefill_tokens, room)
        self._extender = Extender(
            self._network, self._cache, max_running, room, burst, drafts, self._longest,
            self._quick, shared, say,
        )  # fmt: skip
        self._rows = Rows(max_running, self._longest // PAGE + 2, PAGE)
        self._ends = set(model.tokenizer.end_ids)
        self._numbers = itertools.count()
        self._driver: asyncio.Task[None] | None = None
        self._waiting: list[PagedRequest] = []
        self._refused: PagedRequest | None = None
        """The first that waits, if there was no room for it and none has become free since."""
        self._reading: list[PagedRequest] = []
        self._running: list[PagedRequest] = []
        self._gone: list[PagedRequest] = []
        """Their pages are still to be freed: that can wait until the device is at work."""
        self._ended: list[Ended] = []
        """Whole replies that are still to be handed over: that can wait as well."""

    def reset(self) -> None:
        """Forget all keys and values, and take the weights as they are: a batch has ended."""
        self._answer(len(self._ended))
        everyone = (*self._waiting, *self._reading, *self._running)
        if not all(request.done.done() for request in everyone):
            raise RuntimeError("the sampler cannot be reset while requests wait for it")
        self._stop()
        self._waiting, self._reading, self._running, self._gone = [], [], [], []
        self._refused = None
        self._rows = Rows(self.max_running, self._rows.pages.shape[1], PAGE)
        self._pages.clear()
        self._extender.clear()
        if self._copy:
            self._copy.refresh()

    def _stop(self) -> None:
        """Give up a burst that no one waits for: its askers were cancelled."""
        driver, self._driver = self._driver, None
        if driver and not driver.done() and driver is not running_task():
            driver.cancel()
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def rehearse(self) -> None:
        """Record the smallest steps, which may fail; those it can do without are left out."""
        with on_device(self.model.device), torch.inference_mode():
            self._reader.record(1)
            self._extender.record()

    def counts(self) -> Counter[str]:
        """Count, since this was last asked, the model's steps and the tokens that these gave."""
        return self._extender.counts()

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, heard: Heard | None = None
    ) -> Completion:
        """Continue a prompt; returns when the sequence stops or meets its limit.

        `heard` is called with every token, some at a time.
        """
        room, vocabulary = (self._pages.count - 1) * PAGE, self.model.tokenizer.vocab_size
        ids = checked(prompt_ids, sampling, vocabulary, room, self._longest)
        done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        request = PagedRequest(next(self._numbers), ids, sampling, done, heard)
        self._waiting.append(request)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        return await request.done

    async def _drive(self) -> None:
        """Work until no request is left, letting the askers run while the device does."""
        try:
            while True:
                if not self._running:
                    self._answer()
                    await asyncio.sleep(0)
                with on_device(self.model.device):
                    begun = self._cycle()
                if begun is None and not (self._waiting or self._reading or self._ended):
                    self._free_gone()
                    return
                for turn in itertools.count():
                    self._answer()
                    # Whoever was answered asks again at once; others are not kept from working.
                    await asyncio.sleep(0 if turn < 8 or self._ended else 0.0002)
                    self._admit()
                    if begun is None or begun[1].ready():
                        break
                if begun:
                    self._collect(*begun)
        except Exception as error:
            for request in (*self._waiting, *self._reading, *self._running):
                if not request.done.done():
                    request.done.set_exception(error)
            self.reset()

    @torch.inference_mode()
    def _cycle(self) -> tuple[Read | None, Burst] | None:
        """Admit, read and begin a burst; nothing if no prompt is whole yet."""
        self._leave([r for r in self._running if r.done.done()])  # cancelled by their askers
        self._admit()
        read = self._read()
        if read:
            for request in read.requests:
                self._rows.join(request)
            self._running += read.requests
        return (read, self._begin(read)) if self._running else None

    # --- admit -----------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Take waiting requests, first come first served, while rows and pages last."""
        self._waiting = [r for r in self._waiting if not r.done.done()]
        if not self._waiting or self._waiting[0] is self._refused:
            return
        self._free_gone()
        taken, kept = 0, False
        for request in self._waiting:
            count = len(self._running) + len(self._reading)
            request.ids = request.whole
            pages = self._pages.find(request.ids)
            missing = -(-len(request.ids) // PAGE) - len(pages)
            # Everyone may soon need one page more.
            if count and (count >= self.max_running or missing + count + 1 > self._pages.room):
                self._pages.give_back(pages)
                self._refused = request
                break
            if missing > self._pages.free and not kept:
                # Pages are lost: the last in line's go first, after those no one waits for. By age
                # alone each would lose its pages to the one before it.
                self._pages.keep(r.whole for r in self._waiting[taken + 1 :])
                kept = True
            request.cached = len(pages) * PAGE
            places = pages + self._pages.take(missing)
            # Named before they are read: whoever finds them is read later, or in the same pass.
            request.named = self._pages.name(places, request.ids, len(pages))
            request.places = np.array(places)
            self._reading.append(request)
            taken += 1
        del self._waiting[:taken]

    # --- read ------------------------------------------------------------------------------------

    def _read(self) -> Read | None:
        """Read all prompts, pass by pass: a burst costs the same whether few or many get tokens."""
        found: list[Read] = []
        while self._reading:
            found += [read] if (read := self._pass()) else []
        return Read.joined(found)

    def _pass(self) -> Read | None:
        """Read prompts, up to what one pass takes."""
        runs: list[tuple[PagedRequest, int]] = []
        room = self.prefill_tokens
        for request in self._reading:
            if not (size := min(room, len(request.ids) - request.cached)):
                break
            runs.append((request, size))
            room -= size
        hidden = self._reader.read(Runs.of(runs))
        for request, size in runs:
            request.cached += size
        # Only the last one of a pass can have been read in part.
        whole = [request for request, _ in runs if request.cached == len(request.ids)]
        del self._reading[: len(whole)]
        if not whole:
            return None
        with self._network.autocast:
            logits = self._network.logits(hidden[: len(whole)])
        return Read(whole, *first_picks(whole, logits, self._quick))

    # --- extend ----------------------------------------------------------------------------------

    def _begin(self, read: Read | None) -> Burst:
        """Begin to give every running sequence a burst of tokens."""
        if read:
            # Siblings side by side, as all orders by bytes have it: what they share is read once.
            self._running.sort(key=lambda r: r.places.tobytes())
            self._extender.enter(read)
        slots = slots_of(self._running)
        plan = self._extender.plan(self._rows.left(slots))
        if self._make_room(slots, plan, read):
            slots = slots_of(self._running)
        rows = self._rows.begin(slots, plan.tokens, self._extender.compares(plan))
        if read is None:
            return self._extender.burst(plan, rows, None, None)
        row_of = np.empty(self.max_running, dtype=np.int64)
        row_of[slots] = np.arange(len(slots))
        at = put(row_of[slots_of(read.requests)], self.model.device)
        return self._extender.burst(plan, rows, at, read.tokens)

    def _make_room(self, slots: np.ndarray, plan: Plan, read: Read | None) -> bool:
        """Give every running sequence the page that a burst may need.

        If need be at the expense of the latest: it waits again, and what it has is read again.
        Tells whether one does.
        """
        evicted, rows = False, self._rows
        while len(missing := rows.missing(slots, plan.needs(rows.left(slots)))) > self._pages.room:
            if self._gone:
                self._free_gone()
                continue
            # Never one that was just read: its first token is still on the device.
            new = set(read.requests) if read else set()
            latest = max((r for r in self._running if r not in new), key=lambda r: r.number)
            self._evict(latest)
            evicted = True
            slots = slots_of(self._running)
        rows.give(missing, self._pages.take(len(missing)))
        return evicted

    def _evict(self, request: PagedRequest) -> None:
        self._running.remove(request)
        self._rows.leave(request)
        self._free(request)
        request.cached = 0
        self._waiting.insert(0, request)

    def _free(self, request: PagedRequest) -> None:
        self._pages.give_back(request.places)
        request.places, request.named = NONE, 0
        self._refused = None

    # --- collect ---------------------------------------------------------------------------------

    def _collect(self, read: Read | None, burst: Burst) -> None:
        """Append what was drawn; requests that have ended leave."""
        rows, rules = self._rows, (self._ends, self.model.tokenizer)
        slots = slots_of(self._running)
        tokens, logprobs = burst.tokens.numpy(), burst.logprobs.numpy()
        counts = self._extender.counted(burst)
        rows.drew(slots, counts)
        ended: list[Ended] = []
        if read:
            first = read.tokens.cpu().numpy()[None], read.logprobs.cpu().numpy()[None]
            ended = rows.extend(slots_of(read.requests), *first, *rules)
            going = ~np.isin(slots, slots_of(request for request, _ in ended))
            slots, tokens, logprobs = slots[going], tokens[:, going], logprobs[:, going]
            counts = counts[going]
        ended += rows.extend(slots, tokens, logprobs, *rules, counts)
        self._leave([request for request, _ in ended])
        self._ended += ended

    def _answer(self, count: int = ANSWERED) -> None:
        """Hand some whole replies over, in the order of the rows: siblings come back together."""
        for request, reason in self._ended[:count]:
            request.answer(reason)
        del self._ended[:count]

    def _leave(self, requests: list[PagedRequest]) -> None:
        """Take requests out of the rows."""
        if requests:
            gone = set(requests)
            self._running = [r for r in self._running if r not in gone]
            for request in requests:
                self._rows.leave(request)
                self._extender.totals["tokens"] += len(request.tokens)
            self._gone += requests
            self._refused = None

    def _free_gone(self) -> None:
        """Free the pages of who is gone; what they hold may serve the next turn of a chat."""
        for request in self._gone:
            # The newest token's keys were not computed, nor any beyond it that count.
            known = request.whole[:-1][: request.cached]
            self._extender.learn(request)
            self._pages.name(request.places.tolist(), known, request.named)
            self._free(request)
        self._gone = []
