"""Pictures of docs/viewer.md, from a run: python scripts/viewer_screenshots.py RUN [FOLDER].

Needs Chromium with its driver, selenium, and the extra `view`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from recollect.serve.listening import bind
from recollect.view.answers import Answers
from recollect.view.server import serving
from recollect.view.sources import open_sources

IMAGES = Path(__file__).parents[1] / "docs" / "images"
READY = "main table, main svg, #frame pre"
HEIGHT = {"runs": 980, "why": 720, "film": 760, "siblings": 470, "compare": 560}


def pages(answers: Answers, id: str) -> dict[str, str]:
    """Choose what to show: an overwritten answer late in the run, and a group that differs."""
    analysis = answers.analyses[id]
    analysis.finish()
    rows = answers.sources[id].rows
    lost = [r for r in rows if analysis.causes[r["n"], r["q"]][0] == "overwritten"]
    film = max(lost, key=lambda r: (r["split"] == "val", -r["step"]))
    mixed = [r for r in rows if r["split"] == "train" and r["score"] == 1]
    held_out = sorted({r["step"] for r in rows if r["split"] == "val"})
    compared = f"a={id}&b={id}&a_is={held_out[-1]}&b_is={held_out[0]}"
    return {
        "runs": f"#/runs?of={id}",
        "why": f"#/why/{id}",
        "film": f"#/film/{id}/{film['n']}",
        "siblings": f"#/siblings/{id}/{(mixed or rows)[0]['n']}",
        "compare": f"#/compare?{compared}",
    }


def main(run: Path, folder: Path) -> None:
    """Open every page and keep a picture of it."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(word)
    answers = Answers(open_sources([run]))
    [id] = answers.sources
    answers.source(id)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver") or ""))
    folder.mkdir(parents=True, exist_ok=True)
    with bind("127.0.0.1", 0) as listener, serving(answers, listener) as url:
        for name, place in pages(answers, id).items():
            driver.set_window_size(1240, HEIGHT[name])
            driver.get("about:blank")
            driver.get(url + place)
            WebDriverWait(driver, 20).until(lambda d: d.find_elements("css selector", READY))
            driver.execute_async_script("setTimeout(arguments[0], 400)")
            driver.save_screenshot(str(folder / f"viewer-{name}.png"))
    driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else IMAGES)
