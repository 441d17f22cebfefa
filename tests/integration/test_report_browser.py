"""The report in a real browser: it draws, answers to hands and keys, asks nobody, and takes names for names."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.analysis.records import find_runs
from ecgr.runs.record import RunRecord
from support import hostile
from support.browser import chromium, missing, prefer, resize, wait_drawn
from support.reports import report_on
from support.runs import write_comparison_runs, write_run

REASON = missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")

HEADINGS = {
    "answer": "The answer",
    "curves": "Round by round",
    "statistics": "Statistics",
    "steps": "Which steps were kept",
    "federation": "The federation",
    "cost": "Cost",
    "settings": "Settings and provenance",
}
PLOTS = ("metric-0", "loss-0", "metric-1", "loss-1", "overview", "map", "federation")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        resize(driver, 1280, 900)
        yield driver


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings of different gain, with everything that a section can show."""
    directory = tmp_path_factory.mktemp("runs")
    for alpha, gain in ((0.1, 0.05), (1.0, -0.05)):
        own: dict[str, Any] = {"config": {"partition": {"alpha": alpha}}, "rounds": 20, "clients": 5}
        shown = {"notes": ["a note"], "reasons": ["not finite"]}
        write_comparison_runs(directory / str(alpha), seeds=4, gain=gain, **own, **shown)
    write_run(directory / "0.1" / "going", seed=9, rounds=7, planned=20, clients=5, finished=False)
    report_on(find_runs([directory]), directory / "report.html")
    return directory


@pytest.fixture(scope="module")
def page(browser: Any, runs: Path) -> Any:
    """Opened once for all tests; what a test changes, no other looks at."""
    return opened(browser, runs / "report.html")


def opened(driver: Any, path: Path) -> Any:
    """The page, drawn; it has asked nobody and complained of nothing."""
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(path.as_uri())
    wait_drawn(driver)
    assert [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert requests(driver) == []
    assert run_script(driver, "performance.getEntriesByType('resource').length") == 0
    return driver


def run_script(driver: Any, script: str, *arguments: Any) -> Any:
    return driver.execute_script(f"return {script}", *arguments)


def requests(driver: Any) -> list[str]:
    """Every address that the page asked for, itself apart."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith(("data:", "blob:")) and not url.endswith(".html")]


def test_every_section_has_its_heading_and_its_plots_are_drawn(page: Any) -> None:
    found = run_script(
        page, "[...document.querySelectorAll('main section')].map(s => [s.id, s.querySelector('h2').innerText])"
    )
    assert dict(found) == HEADINGS
    for name in PLOTS:
        traces, marks = run_script(
            page,
            "(p => [p.data.length, p.querySelectorAll('path, canvas, image').length])"
            "(document.getElementById(arguments[0]))",
            f"plot-{name}",
        )
        assert traces > 0, name
        assert marks > 0, name


def test_the_policy_stops_what_would_ask(page: Any) -> None:
    stopped = page.execute_async_script(
        "document.addEventListener('securitypolicyviolation', (e) => arguments[0](e.violatedDirective));"
        "fetch('https://example.org/').catch(() => {});"
    )
    assert stopped == "connect-src"


def test_another_client_can_be_chosen_and_its_map_is_the_record_s(page: Any, runs: Path) -> None:
    from selenium.webdriver.support.ui import Select

    for run, client in ((0, 3), (2, 1)):
        Select(page.find_element("id", "steps-run")).select_by_index(run)
        Select(page.find_element("id", "steps-client")).select_by_index(client)
        name = run_script(page, "JSON.parse(document.getElementById('data').textContent).steps[arguments[0]].name", run)
        directory = runs / "0.1" / name
        wait_for_map(page, client)
        drawn = run_script(page, "document.getElementById('plot-map').data[0].z")
        expected = [entry for entry in sorted(RunRecord.open(directory).kept()) if entry.client == client]
        assert len(drawn) == len(expected) == 20
        for row, entry in zip(drawn, expected, strict=True):
            assert set(np.flatnonzero(row).tolist()) == set(entry.kept)


def wait_for_map(page: Any, client: int) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 10).until(lambda d: d.find_element("id", "map-caption").text.startswith(f"Client {client}:"))


def test_the_table_sorts_by_click_and_by_key(page: Any) -> None:
    def settings() -> list[str]:
        column: list[str] = run_script(
            page,
            "[...document.querySelectorAll('#answer table')[0].tBodies[0].rows]"
            ".filter(r => r.cells[0].innerText !== 'fedavg').map(r => r.cells[1].innerText)",
        )
        return column

    headings = page.find_elements("css selector", "#answer table:first-of-type thead th")
    difference = next(cell for cell in headings if cell.text.startswith("difference"))
    button = difference.find_element("tag name", "button")
    button.click()
    assert difference.get_attribute("aria-sort") == "ascending"
    assert settings() == ["partition.alpha=1.0", "partition.alpha=0.1"]
    button.send_keys(" ")
    assert difference.get_attribute("aria-sort") == "descending"
    assert settings() == ["partition.alpha=0.1", "partition.alpha=1.0"]


def test_a_legend_click_isolates_and_smoothing_is_off_until_asked(page: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    def lines() -> list[Any]:
        seen: list[Any] = run_script(
            page, "document.getElementById('plot-metric-0')._fullData.map(t => [t.name, t.visible])"
        )
        return seen

    assert page.find_element("id", "smoothing-text").text == "off"
    mean = "document.getElementById('plot-metric-0').data.filter(t => t.line && t.line.width > 2).map(t => t.y)[0]"
    raw = run_script(page, mean)
    page.execute_script(
        "const s = document.getElementById('smoothing'); s.value = 5; s.dispatchEvent(new Event('input'));"
    )
    smoothed = run_script(page, mean)
    assert smoothed[6] == pytest.approx(np.mean(raw[2:7]))
    toggle = page.find_element("css selector", "#plot-metric-0 .legendtoggle")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", toggle)
    toggle.click()
    WebDriverWait(page, 5).until(lambda _: any(visible == "legendonly" for _, visible in lines()))
    assert {name for name, visible in lines() if visible is True and "," in name} == {"fedavg, 4 seeds"}


def test_the_seeds_are_a_band_behind_the_mean(page: Any) -> None:
    fills = run_script(page, "document.getElementById('plot-metric-0').data.map(t => t.fill === 'toself')")
    assert fills[:2] == [True, True]
    assert not any(fills[2:])


def test_the_scene_turns_by_its_buttons(page: Any) -> None:
    eye = "document.getElementById('plot-overview')._fullLayout.scene._scene.getCamera().eye"
    before = run_script(page, eye)
    page.find_element("css selector", "[data-turn=right]").send_keys("\n")
    assert run_script(page, eye) != before
    page.find_element("css selector", "[data-turn=back]").click()
    assert run_script(page, eye) == pytest.approx(before)


LONG = "scaffold(damping=0.5, units=gradient, control_rate=0.4)/lookahead(momentum=0.7)+ecgr(beta=0.25)"


def test_on_a_phone_in_the_dark_and_with_long_names_the_verdict_stays_in_sight(page: Any, runs: Path) -> None:
    try:
        resize(page, 400, 800, phone=True)
        prefer(page, "dark")
        opened(page, runs / "report.html")
        paper = run_script(page, "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert max(paper) < 64
        for left in (0, 10_000):
            seen = run_script(
                page,
                "((w, x) => { w.scrollLeft = x; const [a, b] = ['tbody th', 'td.verdict'].map(s => w.querySelector(s))"
                ".map(e => e.getBoundingClientRect()); return [a.left, a.right, b.left, b.right, innerWidth]; })"
                "(document.querySelector('#answer .wide'), arguments[0])",
                left,
            )
            name_left, name_right, verdict_left, verdict_right, width = seen
            assert 0 <= name_left < name_right <= verdict_left < verdict_right <= width
        assert page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
        for width in (400, 1400):
            assert verdicts_out_of_sight(page, width) == []
            assert run_script(page, "document.documentElement.scrollWidth") <= width
        table = "document.querySelector('#answer .wide')"
        assert run_script(page, f"{table}.scrollWidth - {table}.clientWidth") <= 0
    finally:
        resize(page, 1280, 900)
        prefer(page, "light")


def verdicts_out_of_sight(page: Any, width: int) -> list[str]:
    """On a page of this width, if every method has a long name."""
    resize(page, width, 900, phone=width == 400)
    found: list[str] = run_script(
        page,
        "(name => { document.querySelectorAll('.wide tbody th:first-child').forEach(e => { e.textContent = name; });"
        " return [...document.querySelectorAll('.wide td.verdict')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.textContent); })(arguments[0])",
        LONG,
    )
    return found


def elements(driver: Any) -> Counter[tuple[str, ...]]:
    found = run_script(
        driver,
        "[...document.querySelectorAll('*')].map(e => [e.tagName, ...[...e.attributes].map(a => a.name).sort()])",
    )
    return Counter(tuple(element) for element in found)


def test_hostile_names_add_no_element_and_no_attribute(browser: Any, tmp_path: Path) -> None:
    pages = {}
    for kind, names in (
        ("hostile", hostile.HOSTILE),
        ("plain", tuple(hostile.harmless(number) for number in range(len(hostile.HOSTILE)))),
    ):
        named: dict[str, Any] = {
            **{"rounds": len(names), "name": " ".join(names), "data": names[0]},
            **{"classes": names, "notes": names, "reasons": names},
        }
        config = {"algorithm": {"name": names[1]}, "model": {"name": names[8]}, "partition": {names[9]: names[10]}}
        for regulator in ("none", "ecgr"):
            write_run(tmp_path / kind / regulator, regulator=regulator, config=config, **named)
        other = {"algorithm": {"name": names[1]}}
        write_run(tmp_path / kind / "other", regulator=names[7], config=other, data=names[3])
        opened(browser, report_on(find_runs([tmp_path / kind]), tmp_path / f"{kind}.html"))
        assert run_script(browser, "window.hacked === undefined")
        pages[kind] = elements(browser), run_script(browser, "document.body.textContent")
    assert pages["hostile"][0] == pages["plain"][0]
    for number in range(len(hostile.HOSTILE)):
        assert hostile.shown(number) in pages["hostile"][1]
