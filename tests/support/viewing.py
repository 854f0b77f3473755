"""Folders to look at, written as training and evaluation write them, and a browser to look with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recollect.config.presets import preset
from recollect.config.stored import settings_of
from recollect.runs.run import Run
from recollect.serve.listening import bind
from recollect.types import Context, Episode, Failure, MemoryOp, Question, Task, Turn
from recollect.view.answers import Answers
from recollect.view.server import serving
from recollect.view.sources import open_sources

CHUNKS = (
    "Maria said her favourite fruit is mango.",
    "It rained in Ghent all week.",
    "Tom bought a bicycle and rides it to work.",
)
QUESTION = Question("What is Maria's favourite fruit?", ("mango",), "fruit", (0,))


def context(role: str, prompt: str, reply: str, **more: Any) -> Context:
    """Return a context of one turn whose tokens are bytes."""
    ids = list(prompt.encode("utf-8", "surrogatepass"))
    said = tuple(reply.encode("utf-8", "surrogatepass"))
    turn = Turn(len(ids), said, (-0.1,) * len(said), "stop")
    return Context(role, ids=[*ids, *said], turns=[turn], **more)


def decode(_role: str, ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", "surrogatepass")


def episode(
    name: str,
    memories: Sequence[str],
    answer: str,
    right: bool = False,
    rollout: int = 0,
    question: Question = QUESTION,
    chunks: Sequence[str] = CHUNKS,
    failure: Failure | None = None,
) -> Episode:
    """Return an episode of a fold that wrote these memories."""
    contexts, ops, memory = [], [], "No previous memory"
    for i, text in enumerate(memories):
        prompt = f"{question.text}\n{chunks[i]}\nMemory: {memory}"
        contexts.append(context("memory", prompt, text, label=f"chunk {i + 1}"))
        ops.append(MemoryOp("replace", {"text": text, "token_ids": ()}, f"chunk {i + 1}"))
        memory = text
    if not failure:
        asked = f"{question.text}\nMemory: {memory}\nAnswer:"
        contexts.append(context("answer", asked, answer, label="question 1", question=0))
    score = float(right)
    done = {"reward": score, "scores": {"answer": score}, "answer_scores": [score]}
    return Episode(
        Task(name, (), (question,), "made up"),
        rollout,
        contexts,
        ops,
        [] if failure else [answer],
        failure=failure,
        **({} if failure else done),
    )


KEPT = "Maria's favourite fruit is mango."
LOST = episode("planted", [KEPT, KEPT, "Tom bought a bicycle."], "\\boxed{bicycle}")
"""A planted overwrite: the last chunk replaced what the first one said."""
FINE = [episode(f"fine-{i}", [KEPT] * 3, "\\boxed{mango}", right=True) for i in range(6)]
MISREAD = [episode(f"misread-{i}", [KEPT] * 3, "\\boxed{kiwi}") for i in range(2)]
NEVER = episode("never", ["nothing"] * 3, "\\boxed{kiwi}")
FAILED = episode(
    "failed", [KEPT], "", failure=Failure("policy", "ContextFull", "no room left", "agent")
)


def open_run(folder: Path, name: str = "planted", seed: int = 0) -> Run:
    """Start a run's folder with the settings of the demo."""
    config = replace(preset("demo"), folder=folder, name=name, seed=seed, steps=3)
    return Run.open(folder / name, settings_of(config))


def metrics(step: int, accuracy: float) -> dict[str, float]:
    return {
        **{"reward/mean": accuracy, "reward/std": 0.4, "tokens/per_turn": 12.0 + step},
        **{"val/accuracy": accuracy, "val/low": accuracy - 0.1, "val/high": accuracy + 0.1},
        **{"train/entropy": 1.0 / (1 + step), "train/mismatch": 1e-4, "tokens/sampled": 900},
        **{"time/rollout": 2.0, "time/update": 1.0},
    }


def write_step(run: Run, step: int, accuracy: float, *episodes: Episode) -> None:
    """Write what a step leaves: held-out episodes and metrics."""
    run.write_episodes(step, "val", episodes, decode)
    run.log(step, metrics(step, accuracy))


def planted(folder: Path, name: str = "planted", seed: int = 0) -> Path:
    """Write a run in which one memory lost the answer, and others failed otherwise."""
    with open_run(folder, name, seed) as run:
        run.log(0, metrics(0, 0.2))
        group = [LOST, *(replace_rollout(e, i + 1) for i, e in enumerate((FINE[0], NEVER)))]
        run.write_episodes(1, "train", group, decode)
        write_step(run, 1, 0.5, *FINE, *MISREAD, LOST, NEVER, FAILED)
    return run.folder


def replace_rollout(own: Episode, rollout: int) -> Episode:
    return replace(own, rollout=rollout, task=LOST.task)


@contextmanager
def viewing(*folders: Path, **more: Any) -> Iterator[tuple[str, Answers]]:
    """Serve folders while the block runs."""
    answers = Answers(open_sources(folders))
    with bind("127.0.0.1", 0) as listener, serving(answers, listener, **more) as url:
        yield url, answers


@dataclass
class Browser:
    """A real Chromium without a window."""

    driver: Any

    def open(self, url: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(url)

    def wait(self, css: str, text: str = "", seconds: float = 8.0) -> Any:
        """Return the first element that a selector finds, once it has some text.

        What is drawn again while it is looked at is looked up again.
        """
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        def found(_driver: Any) -> Any:
            return next((e for e in self.all(css) if text in e.text), None)

        return WebDriverWait(self.driver, seconds, 0.05, [StaleElementReferenceException]).until(
            found, f"no {css} with {text!r} in:\n{self.text()[:2000]}"
        )

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def click(self, css: str, text: str = "") -> None:
        """Click what a selector finds; a list that is drawn again in between is looked up again."""
        from selenium.common.exceptions import StaleElementReferenceException

        for _ in range(20):
            try:
                self.wait(css, text).click()
                return
            except StaleElementReferenceException:
                continue
        raise AssertionError(f"{css} does not stay")

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def errors(self) -> list[str]:
        """Return what the page complained of since the last time; that a server ended is none."""
        found = [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]
        return [message for message in found if "ERR_CONNECTION_REFUSED" not in message]

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium; skip the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("there is no Chromium with its driver (apt install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.add_argument("--window-size=1280,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver)
    opened = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(opened)
    finally:
        opened.quit()
