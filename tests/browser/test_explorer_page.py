# SPDX-License-Identifier: Apache-2.0
"""The explorer in a real browser, on a desktop and on a phone's width. Run by `make test-browser`."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import pytest
from playwright.sync_api import expect, sync_playwright

from ggdp import AdditiveNoise, Composed, GeneralizedGaussian, PoissonSampled, calibrate_scale, epsilon
from ggdp.reporting.explorer.question import Settings, to_query

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
expect.set_options(timeout=60_000)
WIDTHS = {"desktop": (1280, 900), "phone": (400, 800)}
TRAINING = Settings(find="epsilon", beta="2", noise="1.3", rate="256/60000", steps="500", delta="1e-5")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ggdp", "explore", "--port", str(port), "--no-browser"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    place = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(place, timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield place
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=WIDTHS)
def page(browser, request):
    width, height = WIDTHS[request.param]
    opened = browser.new_page(viewport={"width": width, "height": height})
    opened.set_default_timeout(60_000)
    wrong = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    opened.close()
    assert wrong == []


def shown(page, fact):
    """The number in a tile."""
    return float(re.search(r"[\d.e+-]+", page.locator(f"[data-fact={fact}]").inner_text())[0])


def field(page, knob):
    return page.locator(f"[data-knob={knob}] input").first


def test_knobs_turn_and_the_number_is_that_of_the_library(page, address):
    page.goto(address)
    found = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6)
    page.wait_for_selector(".gg-tails")
    assert shown(page, "noise") == pytest.approx(found.noise_multiplier, rel=1e-5)
    assert found.achieved.upper <= shown(page, "epsilon") <= 1.0

    field(page, "beta").fill("1.25")
    field(page, "beta").press("Enter")
    wanted = calibrate_scale(beta=1.25, epsilon=1.0, delta=1e-6).noise_multiplier
    expect(page.locator("[data-fact=noise]")).to_contain_text(f"{wanted:.4f}"[:5])

    # A slider moves the field beside it, and the number.
    page.locator("[data-knob=beta] [role=slider]").focus()
    page.keyboard.press("ArrowRight")
    expect(field(page, "beta")).to_have_value("1.3")
    wanted = calibrate_scale(beta=1.3, epsilon=1.0, delta=1e-6).noise_multiplier
    expect(page.locator("[data-fact=noise]")).to_contain_text(f"{wanted:.4f}"[:5])
    assert shown(page, "noise") == pytest.approx(wanted, rel=1e-5)

    # Nothing is cut off at the side, and all four pictures are there.
    page.wait_for_selector(".gg-tails")
    expect(page.locator(".gg-card img")).to_have_count(4)
    boxes = "[...document.querySelectorAll('.gg-knobs, .gg-tile, .gg-card')]"
    assert max(page.evaluate(f"{boxes}.map(one => one.scrollWidth - one.clientWidth)")) <= 0
    assert page.evaluate("document.querySelector('#App').scrollWidth <= window.innerWidth")


def test_a_link_restores_the_state_and_its_number_is_that_of_the_library(page, address):
    page.goto(f"{address}?{to_query(TRAINING)}")
    noise = GeneralizedGaussian.from_noise_multiplier(2.0, 1.3)
    run = Composed(PoissonSampled(AdditiveNoise(noise), rate=256 / 60000), times=500)
    cost = epsilon(run, delta=1e-5)
    page.wait_for_selector("[data-fact=epsilon]")
    assert cost.upper <= shown(page, "epsilon") <= cost.upper * (1 + 1e-5)
    assert field(page, "rate").input_value() == "256/60000"
    # The link on the page leads to the same state.
    page.locator(".gg-code a").click()
    page.wait_for_selector("[data-fact=epsilon]")
    assert cost.upper <= shown(page, "epsilon") <= cost.upper * (1 + 1e-5)
    # An example replaces all of it.
    page.get_by_role("button", name="One release").click()
    expect(field(page, "rate")).to_have_value("1")


def test_what_cannot_be_answered_is_one_sentence_and_the_page_recovers(page, address):
    page.goto(f"{address}?{to_query(replace(TRAINING, beta='x'))}")
    alert = page.locator(".gg-error")
    expect(alert).to_have_text("Beta must be a number, such as 0.5 or 1e-6, got 'x'.")
    assert "Traceback" not in page.inner_text("body")
    field(page, "beta").fill("2")
    field(page, "beta").press("Enter")
    page.wait_for_selector("[data-fact=epsilon]")
    expect(alert).to_have_count(0)


def test_code_can_be_copied(page, address):
    page.goto(address)
    page.wait_for_selector(".gg-code pre")
    buttons = page.locator(".gg-code button[aria-label='Copy to clipboard']")
    expect(buttons).to_have_count(3)
    expect(buttons.first).to_be_visible()
