"""A headless Chromium for tests that look at real pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")


def missing() -> str | None:
    """Why there is no browser to test with, if so."""
    for path, package in ((CHROMIUM, "chromium"), (DRIVER, "chromium-driver")):
        if not path.exists():
            return f"{path} is missing (Debian: apt-get install {package})"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is missing (pip install selenium)"
    return None


@contextmanager
def chromium(profile: Path, *arguments: str) -> Iterator[Any]:
    """A driver of a fresh, offline Chromium that logs its console and its network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage"),
        *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--disable-sync", "--hide-scrollbars", f"--user-data-dir={profile}", *arguments),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int, *, phone: bool = False) -> None:
    """Give the page a viewport of exactly this size."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def prefer(driver: Any, scheme: str) -> None:
    """Prefer ``light`` or ``dark``."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait_drawn(driver: Any, seconds: float = 30) -> None:
    """Wait until the report has drawn everything."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, seconds, poll_frequency=0.05).until(
        lambda d: d.execute_script("return document.documentElement.dataset.drawn === 'all'")
    )
