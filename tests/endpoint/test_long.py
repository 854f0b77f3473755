"""A document far longer than the window; `benchmarks/endpoint_million.py` is the same, whole."""

from benchmarks.endpoint_million import measure


def test_a_hundred_thousand_tokens_through_a_window_of_8k():
    found = measure(100_000, 8192)
    assert found["tokens"] >= 99_000 and found["facts_answered"] == 100
    assert found["longest_prompt_tokens"] <= 8192 and found["calls"] >= 15
    assert found["calls_when_grown"] == 0
    assert found["server_mib_peak"] < found["server_mib_idle"] + 100
