"""Drives the machine's Chromium over its debugging protocol: enough to look at a page and use it."""

import asyncio
import itertools
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")


class Tab:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.ids = socket, itertools.count(1)
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.requested: list[str] = []  # every address the page asked for
        self.complaints: list[str] = []  # console errors, uncaught exceptions, CSP violations
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.socket:
            event = message.json()
            if "id" in event:
                self.waiting.pop(event["id"]).set_result(event)
            elif event["method"] == "Network.requestWillBeSent":
                self.requested.append(event["params"]["request"]["url"])
            elif event["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                self.complaints.append(event["params"]["entry"]["text"])

    async def send(self, method: str, **parameters: Any) -> Any:
        id = next(self.ids)
        self.waiting[id] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": id, "method": method, "params": parameters})
        answer = await self.waiting[id]
        assert "error" not in answer, answer
        return answer["result"]

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, condition: str, timeout_s: float = 10.0) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not await self.run(f"Boolean({condition})"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            body = await self.run("document.body.innerText")
            raise AssertionError(f"never came true: {condition}\n{self.complaints}\n{body}") from None

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until(f"location.href.startsWith('{url}') && document.readyState === 'complete'")


class Chromium:
    """One browser for many tabs. `port` is its debugging port."""

    FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars
        --disable-component-update --disable-sync --remote-debugging-port=0 about:blank"""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM
        command = [CHROMIUM, f"--user-data-dir={profile}", *self.FLAGS.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = profile / "DevToolsActivePort"
        give_up_s = time.monotonic() + 30
        while not port_file.exists() or "\n" not in port_file.read_text():
            assert self.process.poll() is None and time.monotonic() < give_up_s, "chromium did not start"
            time.sleep(0.05)
        self.port = int(port_file.read_text().split("\n")[0])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """A blank tab of its own."""
        async with aiohttp.ClientSession() as http:
            async with http.put(f"http://127.0.0.1:{self.port}/json/new?about:blank") as made:
                target = await made.json()
            async with http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=1 << 26) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Network", "Runtime", "Log"):
                    await tab.send(f"{domain}.enable")
                yield tab
                await tab.send("Page.navigate", url="about:blank")
                tab.reader.cancel()
                await asyncio.gather(tab.reader, return_exceptions=True)
            async with http.get(f"http://127.0.0.1:{self.port}/json/close/{target['id']}"):
                pass
