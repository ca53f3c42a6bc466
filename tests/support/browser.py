"""A headless Chromium on the page of a real service: what it shows, what it complained about, how it looks.

The browser is Debian's `chromium` with its own driver. Whatever the page must never do is collected from the browser itself: errors
of its console, uncaught faults, and violations of the content security policy (by an event listener put in before the page's own
scripts). Screenshots go to `build/screenshots`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoAlertPresentException, StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.service import Service as DriverService
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SCREENSHOTS: Final = Path(__file__).resolve().parents[2] / "build" / "screenshots"
PATIENCE_S: Final = 30.0
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--enable-precise-memory-info",
)
_WATCH: Final = """
window.__faults = [];
document.addEventListener('securitypolicyviolation', e =>
  window.__faults.push('policy: ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sourceFile + ':' + e.lineNumber));
window.addEventListener('error', e => window.__faults.push('error: ' + e.message), true);
window.addEventListener('unhandledrejection', e => window.__faults.push('rejection: ' + (e.reason && e.reason.stack || e.reason)));
"""


def require_chromium() -> tuple[str, str]:
    """Paths of the browser and its driver. Skips without them, except in CI, where it fails."""
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if found[0] and found[1]:
        return found[0], found[1]
    if os.environ.get("CI") == "true":
        pytest.fail("chromium and chromedriver are missing: apt-get install chromium chromium-driver")
    pytest.skip("needs chromium and chromedriver (apt-get install chromium chromium-driver)")


def start_driver(width: int = 1280, height: int = 800) -> webdriver.Chrome:
    """A browser with a fresh profile that watches for faults; the caller quits it."""
    chromium, driver_path = require_chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=DriverService(driver_path))
    driver.set_script_timeout(120)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
    return driver


class Page:
    """One tab on a service."""

    def __init__(self, driver: webdriver.Chrome, base_url: str) -> None:
        self.driver, self.base_url = driver, base_url
        self.expected: tuple[str, ...] = ()  # parts of faults that a test provokes

    def open(self, path: str = "/") -> None:
        """Loads an address of the service afresh."""
        self.driver.get("about:blank")  # an address that differs in its fragment only would not load again
        self.driver.get(self.base_url + path)

    def script(self, code: str, *arguments: Any) -> Any:
        """Runs JavaScript in the page and returns its value."""
        return self.driver.execute_script(code, *arguments)

    def until(self, condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
        """The first true value of a condition; fails with the page's text after `patience_s`."""

        def holds(_: webdriver.Chrome) -> Any:
            try:
                return condition()
            except StaleElementReferenceException:
                return False

        try:
            return WebDriverWait(self.driver, patience_s, poll_frequency=0.05).until(holds)
        except TimeoutException:
            self.shot("failed")
            text = self.text()[:3000]
            raise AssertionError(f"not within {patience_s} s: {what}\nfaults: {self.faults()}\nthe page says:\n{text}") from None

    def text(self) -> str:
        """What a reader sees."""
        return str(self.script("return document.body ? document.body.innerText : ''"))

    def all(self, selector: str) -> list[Any]:
        """Elements by CSS selector, possibly none."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> Any:
        """The first element of a CSS selector, awaited."""
        return self.until(lambda: next(iter(self.all(selector)), None), f"an element {selector}")

    def wait_text(self, *parts: str, patience_s: float = PATIENCE_S) -> str:
        """Waits until the page shows all parts, ignoring case; returns its text."""

        def shown() -> str | None:
            text = self.text()
            return text if all(p.lower() in text.lower() for p in parts) else None

        return str(self.until(shown, f"the text {parts}", patience_s))

    def faults(self) -> list[str]:
        """Console errors, uncaught faults, policy violations and dialogs since the last call, without the expected ones."""
        logged = [f"console: {e['message']}" for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]
        watched = list(self.script("const seen = window.__faults || []; window.__faults = []; return seen"))
        with contextlib.suppress(NoAlertPresentException):
            watched.append(f"dialog: {self.driver.switch_to.alert.text}")
        return [fault for fault in (*logged, *watched) if not any(part in fault for part in self.expected)]

    def theme(self, scheme: str) -> None:
        """Asks the page to be `light` or `dark`, as the system setting does."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def shot(self, name: str) -> Path:
        """Saves what is seen as build/screenshots/NAME.png."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path
