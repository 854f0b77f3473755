"""Settings become the right reader and scorer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from recollect.config.presets import PRESETS, preset
from recollect.errors import UserError
from recollect.metrics import METRICS
from recollect.policies.cached import RemoteModel
from recollect.rewards.answers import AnswerReward
from recollect.rewards.judge import Judge
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.readers import EvidenceReader, MetricScorer, TextReader
from recollect.train.wiring import make_reward

CURATOR = PRESETS["curator"]
URL = "http://127.0.0.1:9/v1"


def made(**settings) -> MemoryDelta:
    reward = make_reward(dataclasses.replace(CURATOR, reward=MemoryDelta(**settings)), {})
    assert isinstance(reward, MemoryDelta)
    return reward


def test_without_a_model_evidence_is_read():
    assert isinstance(made().reads, EvidenceReader)


def test_an_endpoint_reads_and_a_judge_scores(tmp_path: Path):
    reader = made(
        reader="endpoint", reader_url=URL, judge_url=URL, judge_model="j", answers=tmp_path
    ).reads
    assert isinstance(reader, TextReader)
    assert isinstance(reader.answerer, RemoteModel) and reader.answerer.url == URL
    assert isinstance(reader.scorer, Judge) and reader.scorer.model.model == "j"
    kept = {reader.answerer.cache, reader.scorer.model.cache}
    assert kept == {tmp_path / "reader.jsonl", tmp_path / "judge.jsonl"}


def test_without_a_judge_the_metric_scores():
    reader = made(reader="endpoint", reader_url=URL, metric="exact_match").reads
    assert isinstance(reader, TextReader)
    assert reader.scorer == MetricScorer(METRICS["exact_match"])


def test_an_endpoint_without_an_address_is_refused():
    with pytest.raises(UserError, match="reader-url"):
        made(reader="endpoint")
    with pytest.raises(UserError, match="reader-url"):
        made(reader_url=URL)


def test_ledger_answers_are_compared_by_value():
    reward = make_reward(PRESETS["ledger"], {})
    assert isinstance(reward, AnswerReward)
    assert reward.score("\\boxed{Medical, Dining}", ("Dining, Medical",)) == 1.0
    assert reward.score("\\boxed{45.00}", ("5.00",)) == 0.0


def test_a_preset_knows_its_name():
    assert preset("ledger").preset == "ledger"


def test_a_metric_is_named_or_given() -> None:
    for name, metric in METRICS.items():
        assert AnswerReward(name).score is metric and AnswerReward(metric).score is metric
    with pytest.raises(UserError, match="there is no metric 'f1'") as caught:
        AnswerReward("f1")
    assert "token_f1" in caught.value.fix
