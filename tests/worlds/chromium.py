"""Chromium without a window, driven by ChromeDriver over HTTP (https://www.w3.org/TR/webdriver2)."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--no-proxy-server", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


class Browser:
    """A browser with one page.

    Args:
        url: Of the driver's session.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def _ask(self, path: str, **body: Any) -> Any:
        return _ask(f"{self._url}/{path}", body)

    def _cdp(self, command: str, **parameters: Any) -> Any:
        return self._ask("goog/cdp/execute", cmd=command, params=parameters)

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the size of the page, in CSS pixels, and the theme."""
        self._cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._cdp("Emulation.setEmulatedMedia", features=[feature])

    def open(self, address: str) -> None:
        """Open a page."""
        self._ask("url", url=address)

    def run(self, script: str) -> Any:
        """Return the value of a function's body."""
        return self._ask("execute/sync", script=script, args=[])

    def wait_until(self, condition: str, seconds: float = 30.0) -> Any:
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(f"return {condition}")):
            assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
            time.sleep(0.1)
        return value

    def photograph(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self._cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Run a browser with an empty profile, and end it and its driver with the block."""
    assert BROWSER is not None and DRIVER is not None, "install chromium and chromium-driver"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    session = ""
    try:
        base = f"http://127.0.0.1:{port}"
        _wait_for(driver, f"{base}/status")
        arguments = [*_ARGUMENTS, f"--user-data-dir={profile}"]
        options = {"goog:chromeOptions": {"binary": BROWSER, "args": arguments}}
        session = f"{base}/session/{_ask(f'{base}/session', {'capabilities': {'alwaysMatch': options}})['sessionId']}"
        yield Browser(session)
    finally:
        if session:
            with suppress(OSError):
                _ask(session, None, "DELETE")
        driver.terminate()
        try:
            driver.wait(10)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait(10)


def _wait_for(driver: subprocess.Popen[bytes], status: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        with suppress(OSError):
            if _ask(status, None, "GET")["ready"]:
                return
        assert driver.poll() is None and time.monotonic() < deadline, "the driver does not answer"
        time.sleep(0.1)


def _ask(url: str, body: Any, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.read().decode(errors='replace')[:500]}") from None
