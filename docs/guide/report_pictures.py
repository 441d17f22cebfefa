"""The pictures of the guide, taken from a real report.

PYTHONPATH=tests python docs/guide/report_pictures.py runs/compare-quickstart/report.html docs/guide/images
"""

import base64
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.browser import chromium, prefer, resize, wait_drawn

DESKTOP, PHONE = (1180, 900), (390, 844)


def main(report: Path, directory: Path) -> None:
    """Take every picture."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as driver:
        resize(driver, *DESKTOP)
        _open(driver, report)
        for section in driver.execute_script("return [...document.querySelectorAll('main section')].map(s => s.id)"):
            if section not in ("settings", "statistics"):
                _take(driver, directory / f"report-{section}.png", f"#{section}")
        prefer(driver, "dark")
        _open(driver, report)
        _take(driver, directory / "report-dark.png", "#steps")
        prefer(driver, "light")
        resize(driver, *PHONE, phone=True)
        _open(driver, report)
        _save(driver, directory / "report-phone.png", {"x": 0, "y": 0, "width": PHONE[0], "height": PHONE[1]})


def _open(driver: Any, report: Path) -> None:
    driver.get(report.resolve().as_uri())
    wait_drawn(driver)


def _take(driver: Any, path: Path, selector: str) -> None:
    """One section, from edge to edge of the page."""
    box = driver.execute_script(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return {x: 0, y: b.top + scrollY, width: innerWidth, height: b.height};",
        selector,
    )
    _save(driver, path, box)


def _save(driver: Any, path: Path, clip: dict[str, float]) -> None:
    """A small PNG: a report has few colours."""
    from PIL import Image

    driver.execute_async_script("setTimeout(arguments[0], 500)")  # hover and transitions come to rest
    shot = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {**clip, "scale": 1}}
    )
    with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as picture:
        picture.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
