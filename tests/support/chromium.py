"""A real Chromium for tests of the page, and what a person does on it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT = 20_000
"""Milliseconds: a bound for a slow machine, not a measurement."""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips, visibly, where Chromium or Playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield opened
        opened.close()


@contextlib.contextmanager
def new_page(browser: Any, **context: Any) -> Iterator[Any]:
    """A page that fails its test on any script error or blocked resource."""
    within = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | context))
    opened = within.new_page()
    opened.set_default_timeout(WAIT)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    yield opened
    within.close()
    assert faults == []


def sign_in(page: Any, secret: str) -> None:
    page.get_by_role("button", name="Sign in").first.click()
    page.get_by_label("Token").fill(secret)
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()


def headline(page: Any, text: str) -> None:
    """Wait until the banner says `text`."""
    page.locator(".banner-state", has_text=text).wait_for()
