"""Bursts with drafts: each step reads guesses after the newest tokens, and keeps those that agree.

Every place gets its own token with its own draw, as without drafts; a guess only decides whether
the token that follows it was computed with the right past. So drafts change no token, only how many
a step gives. Guesses are looked up and checked on the device: steps are recorded, and the host is
needed only before the first and after the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from recollect.models.model import LoadedModel
from recollect.models.transfer import put
from recollect.sampler.bursts import Burst, BurstRows, BurstStart, fetched, started
from recollect.sampler.graphs import Graphs, Staged
from recollect.sampler.history import LOOKED, NO_TOKEN, History
from recollect.sampler.pace import NARROW
from recollect.sampler.paged_attention import PagedCache, PromptPlan
from recollect.sampler.paged_requests import PagedRequest
from recollect.sampler.pick import Way, pick
from recollect.sampler.recent import RecentReplies

TILE = 16
"""Tokens of a sequence that one step takes at most."""
NUMBERS = 1 << 27
"""Logits that a step may have. With more, picking tokens as torch does takes longer than the model;
with kernels for it, more has not been tried."""
RECENT = 1024
"""Tokens of recent replies that are searched."""


class Drafter:
    """Extend the sequences of a cache, by as many tokens at each step as were guessed."""

    def __init__(
        self,
        model: LoadedModel,
        cache: PagedCache,
        rows: BurstRows,
        history: History,
        steps: int,
        quick: bool = False,
    ) -> None:
        self.width = history.ahead + 1
        """Tokens of a sequence in one step: its newest one, and guesses."""
        if self.width > TILE or self.width * steps > cache.size:
            raise ValueError("a step is no longer than a tile, and a burst no longer than a page")
        self.model = model
        self.cache = cache
        self.history = history
        self.max_steps = steps
        self.quick = quick
        """Whether our own kernels pick tokens, where they can."""
        self.recent = RecentReplies(RECENT)
        device = cache.device
        self.max_rows = rows.ints.there.shape[1]
        vocabulary = model.network.get_output_embeddings().weight.shape[0]
        self.most_tokens = NUMBERS // vocabulary
        self._graphs = Graphs() if device.type == "cuda" else None
        self._recorded: set[tuple[int, Way]] = set()
        self._rows = rows
        self._others = Staged((RECENT,), torch.int32, device)
        self._others.there.fill_(NO_TOKEN)
        self._ends = torch.tensor(model.tokenizer.end_ids, dtype=torch.long, device=device)
        self.trust = torch.zeros(history.table.shape[0], dtype=torch.long, device=device)
        """Guesses that each slot may have: few where they were wrong."""
        places = self.max_rows * steps * self.width + 1  # the last is for what does not count
        self._tokens = torch.zeros(places, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(places, device=device)
        self._made = torch.zeros(3, self.max_rows, dtype=torch.long, device=device)
        """Tokens of each row, steps until it ended, tokens guessed."""
        self._over = torch.zeros(self.max_rows, dtype=torch.bool, device=device)

    def enter(self, requests: Sequence[PagedRequest], first: torch.Tensor) -> None:
        """Take in sequences that were read; the first token of each is on the device."""
        slots = np.array([request.slot for request in requests], dtype=np.int64)
        limits = [request.sampling.max_tokens for request in requests]
        self.history.enter(slots, [request.ids for request in requests], limits, first)
        self.trust.index_fill_(0, put(slots, self.cache.device), self.history.ahead)

    def fits(self, count: int) -> bool:
        """Tell whether this many sequences leave room for guesses."""
        return 2 * self._size(count) <= self.most_tokens

    def burst(
        self,
        rows: BurstStart,
        steps: int,
        narrow: bool,
        at: torch.Tensor | None = None,
        newest: torch.Tensor | None = None,
    ) -> Burst:
        """Begin to give every sequence tokens, in some steps; there is a draw for each of them."""
        count = len(rows.ids)
        size, tokens = self.record(count, rows.way, narrow)
        self._rows.load(rows, size, at, newest)
        if self.recent.changed:
            self._others.host[:] = self.recent.array()
            self._others.send()
        self._start()
        began = started(self.cache.device)
        for _ in range(steps):
            if self._graphs:
                self._graphs.replay((size, tokens, rows.way))
            else:
                self._extend(size, tokens, rows.way)
        return self._fetched(steps, count, began)

    def record(self, count: int, way: Way, narrow: bool) -> tuple[int, int]:
        """Return how many rows and tokens a step has; record it, if steps are recorded."""
        size = self._recorded_size(count, way)
        tokens = min(self.most_tokens, size * (NARROW if narrow else self.width))
        if self._graphs:
            name = (size, tokens, way)
            self._graphs.record(name, lambda: self._extend(size, tokens, way), self._blank)
            self._recorded.add((size, way))
        return size, tokens

    def _size(self, count: int) -> int:
        """Round up to a power of two: a row too many costs one token, not a whole draft."""
        return min(self.max_rows, max(8, 1 << (count - 1).bit_length()))

    def _recorded_size(self, count: int, way: Way) -> int:
        """Return a size that is recorded already, if one is not much too large."""
        size = self._size(count)
        near = (times * size for times in (1, 2, 4) if 2 * times * size <= self.most_tokens)
        return next((other for other in near if (other, way) in self._recorded), size)

    def _start(self) -> None:
        self._made.zero_()
        torch.le(self._rows.ints.there[4], 0, out=self._over)

    def _blank(self) -> None:
        self._rows.blank()
        self._start()

    def _fetched(self, steps: int, count: int, began: torch.cuda.Event | None) -> Burst:
        shape = (self.max_rows, self.max_steps * self.width)
        own = slice(None, count), slice(None, steps * self.width)
        tokens_BK, logprobs_BK = (
            values[:-1].view(shape)[own] for values in (self._tokens, self._logprobs)
        )
        return fetched(tokens_BK.T, logprobs_BK.T, began, self._made[:, :count])

    # --- one step --------------------------------------------------------------------------------

    def _extend(self, size: int, tokens: int, way: Way) -> None:
        """Give every row the tokens that its guesses lead to, at least one."""
        ids, lengths, begin, slots, left = self._rows.ints.there[:, :size]
        guess_RK, count_R = self._guess(slots, left - self._made[0, :size], tokens)
        ends_R = (count_R + 1).cumsum(0)
        first_R = ends_R - count_R - 1
        at_N = torch.arange(tokens, device=ids.device)
        row_N = torch.searchsorted(ends_R, at_N, right=True).clamp_(max=size - 1)
        used_N = at_N < ends_R[-1]
        nth_N = torch.where(used_N, at_N - first_R.index_select(0, row_N), 0)
        fed_RW = torch.cat([ids[:, None], guess_RK], 1)
        ids_N = torch.where(used_N, fed_RW[row_N, nth_N], 0)
        position_N = torch.where(used_N, lengths.index_select(0, row_N) + nth_N, 0)
        page_N = begin.index_select(0, row_N) + position_N // self.cache.size
        place_N = self._rows.pages.there.index_select(0, page_N).long() * self.cache.size
        into_N = torch.where(used_N, place_N + position_N % self.cache.size, 0)
        tiles = torch.stack([torch.arange(size, device=ids.device), first_R])
        runs = torch.stack([ends_R, lengths + count_R + 1, begin])
        plan = PromptPlan(self.cache, into_N, tiles, runs, self._rows.pages.there, TILE)
        with self.model.autocast:
            logits = self.model.logits(self.model.hidden(ids_N, position_N, plan))
        tokens_N, logprobs_N = self._pick(logits, row_N, nth_N, size, way)
        nth_W = torch.arange(self.width, device=ids.device)
        index_RW = (first_R[:, None] + nth_W).clamp_(max=tokens - 1)
        self._keep(guess_RK, count_R, tokens_N[index_RW], logprobs_N[index_RW])

    def _guess(
        self, slots: torch.Tensor, left: torch.Tensor, tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Guess what follows each row's newest token: (R, K) tokens, and how many are meant."""
        guess_RK, count_R, agree_R = self.history.guess(slots, self._others.there)
        trust_R = self.trust.index_select(0, slots)
        # A sequence whose guesses were wrong may try again where many tokens agree.
        trust_R = torch.where(agree_R == LOOKED, trust_R.clamp(min=1), trust_R)
        count_R = torch.minimum(torch.minimum(count_R, trust_R), left - 1).clamp_(min=0)
        count_R = torch.where(self._over[: len(slots)], 0, count_R)
        room = tokens - len(slots)
        # Where not all have room for theirs, each gets a share; what is still too much is cut.
        share = (room // (count_R > 0).sum().clamp(min=1)).clamp(min=1)
        count_R = torch.where(count_R.sum() > room, torch.minimum(count_R, share), count_R)
        room_R = room - (count_R.cumsum(0) - count_R)
        return guess_RK.long(), torch.minimum(count_R, room_R.clamp_(min=0))

    def _pick(
        self, logits: torch.Tensor, row_N: torch.Tensor, nth_N: torch.Tensor, size: int, way: Way
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pick a token at every place, with the draw that is this token's without drafts too."""
        floats = self._rows.floats.there
        temperature_N, top_p_N = floats[:2].index_select(1, row_N)
        number_N = 2 + self._made[0, :size].index_select(0, row_N) + nth_N
        number_N = number_N.clamp_(max=len(floats) - 1)
        return pick(logits, temperature_N, top_p_N, floats[number_N, row_N], way, self.quick)

    def _keep(
        self,
        guess_RK: torch.Tensor,
        count_R: torch.Tensor,
        tokens_RW: torch.Tensor,
        logprobs_RW: torch.Tensor,
    ) -> None:
        """Keep the tokens up to the first that is not the guess, or that ends its sequence."""
        size = len(count_R)
        ids, lengths, _begin, slots, left = self._rows.ints.there[:, :size]
        over_R, made = self._over[:size], self._made[:, :size]
        nth_W = torch.arange(self.width, device=ids.device)
        is_end_RW = (tokens_RW[..., None] == self._ends).any(-1)
        right_RK = (tokens_RW[:, :-1] == guess_RK) & (nth_W[:-1] < count_R[:, None])
        accepted_R = (right_RK & ~is_end_RW[:, :-1]).long().cumprod(1).sum(1)
        new_R = torch.where(over_R, 0, accepted_R + 1)
        at_RW = made[0, :, None] + nth_W
        row_R = torch.arange(size, device=ids.device)
        flat_RW = row_R[:, None] * (self.max_steps * self.width) + at_RW
        flat_RW = torch.where(nth_W < new_R[:, None], flat_RW, len(self._tokens) - 1).view(-1)
        self._tokens.index_copy_(0, flat_RW, tokens_RW.reshape(-1))
        self._logprobs.index_copy_(0, flat_RW, logprobs_RW.reshape(-1))
        self.history.append(slots, tokens_RW, new_R)
        last_R1 = accepted_R[:, None]
        ids.copy_(torch.where(over_R, ids, tokens_RW.gather(1, last_R1)[:, 0]))
        lengths.add_(new_R)
        self.trust.index_copy_(0, slots, self._trusted(slots, count_R, accepted_R))
        made.add_(torch.stack([new_R, (~over_R).long(), count_R]))
        over_R.logical_or_(is_end_RW.gather(1, last_R1)[:, 0] | (made[0] >= left))

    def _trusted(
        self, slots: torch.Tensor, count_R: torch.Tensor, accepted_R: torch.Tensor
    ) -> torch.Tensor:
        """Say how many guesses each slot may have next."""
        known_R = self.trust.index_select(0, slots)
        more_R = (2 * accepted_R + 1).clamp_(max=self.history.ahead)
        more_R = torch.where(accepted_R == count_R, torch.maximum(more_R, known_R), more_R)
        less_R = torch.where(accepted_R > 0, more_R, known_R // 2)
        return torch.where(count_R > 0, less_R, known_R)
