"""A headless Chromium for tests: Debian's, or any found on PATH; nothing is downloaded.

Every page is opened from disk. What it logged and what it asked of the network are kept, to be held to nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hangs import HANG_S

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_END_S = 10.0
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",  # root in a container has no user namespaces; the pages are our own
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)


def why_none() -> str | None:
    """Why there is no browser; None if there is one."""
    if _chromium() is None:
        return f"needs a Chromium: none of {', '.join(_NAMES)} on PATH (Debian: apt-get install chromium)"
    if shutil.which("chromedriver") is None:
        return "needs chromedriver on PATH (Debian: apt-get install chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "needs selenium: pip install -r requirements.txt"
    return None


def _chromium() -> str | None:
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Browser:
    """One window of a driver."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, theme: str = "light", width: int = 1280, height: int = 900) -> None:
        """Open a file for a user who prefers this theme, and wait until its script has ended and it is painted:
        Chromium may drop keys that come before the first paint."""
        self.logs()  # what an earlier page left
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.driver.get(path.as_uri())
        self.wait("document.documentElement.dataset.ready === 'yes'")
        self.wait("performance.getEntriesByName('first-contentful-paint').length")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = HANG_S) -> None:
        """Wait until a condition holds. `get` can return before the script of a large page has ended."""
        end = time.monotonic() + seconds
        while not self.js(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"{condition}: not after {seconds} s; the console has {self.logs()}"
            time.sleep(0.02)

    def media(self, media: str) -> None:
        """Show the page as it is printed ("print"), or as on a screen ("")."""
        self._command("Emulation.setEmulatedMedia", media=media)

    def one(self, selector: str) -> Any:
        found = self.all(selector)
        assert len(found) == 1, f"{len(found)} of {selector}"
        return found[0]

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def press(self, *keys: str) -> None:
        """Send keys to the element that has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def logs(self) -> list[str]:
        """The messages in the console since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that the page requested since the last call, without files and data."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("file:", "data:", "about:", "chrome"))]

    def forget(self) -> None:
        """Delete what pages stored. All files share one storage, and a page's own `localStorage.clear()` reaches the
        next page some time later: it can then delete what that one stored. This command returns when it is done."""
        self._command("Storage.clearDataForOrigin", origin="file://", storageTypes="local_storage")

    def _command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with its own profile, which is deleted at the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _chromium() or ""
    memory = _in_memory()
    with tempfile.TemporaryDirectory(prefix="tritonhook-chromium-", dir=memory) as profile:
        for switch in (*_SWITCHES, f"--user-data-dir={profile}", *([] if memory else ["--disable-dev-shm-usage"])):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Chromium makes a socket in $TMPDIR, and ends at once if that is a long path.
        environment = {**os.environ, "SE_AVOID_STATS": "true", "SE_OFFLINE": "true", "TMPDIR": profile}
        # A session of its own, so that the driver and every Chromium process it started can be ended together.
        own_session = {"start_new_session": True}
        service = Service(shutil.which("chromedriver"), env=environment, popen_kw=own_session)
        driver = webdriver.Chrome(options=options, service=service)
        # Under load a Chromium was seen not to end by itself; Selenium waits for it for minutes.
        guard = threading.Timer(_END_S, _end_session, [service.process.pid])
        try:
            yield Browser(driver)
        finally:
            guard.start()
            driver.quit()
            guard.cancel()


def _in_memory() -> str | None:
    """A folder in memory for the profile: on a busy disk, Chromium can wait for a minute."""
    place = Path("/dev/shm")
    with suppress(OSError):
        free = os.statvfs(place)
        if os.access(place, os.W_OK) and free.f_bavail * free.f_frsize > 1 << 30:
            return str(place)
    return None


def _end_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
