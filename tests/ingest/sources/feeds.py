"""RSS and Atom for tests, and a real HTTP server that answers with them and with faults."""

import asyncio
from dataclasses import dataclass, field
from html import escape

NOW_MS = 1_783_159_500_000  # 2026-07-04T10:05:00Z


def item(title="", text="", *, guid="", link="", date="Sat, 04 Jul 2026 10:00:00 GMT", more=""):
    parts = {"title": title, "description": text, "guid": guid, "link": link, "pubDate": date}
    return (
        f"<item>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in parts.items() if value)}{more}</item>"
    )


def rss(*items, title="News", more=""):
    channel = f"<title>{title}</title><link>https://ex.org/</link>{more}{''.join(items)}"
    return f'<?xml version="1.0"?><rss version="2.0"><channel>{channel}</channel></rss>'.encode()


def entry(number, text, *, updated="2026-07-04T10:05:00Z", published="2026-07-04T10:00:00Z", more=""):
    dates = "".join(
        f"<{name}>{date}</{name}>" for name, date in (("published", published), ("updated", updated)) if date
    )
    link = f'<link rel="alternate" href="https://ex.org/{number}"/>'
    head = f'<id>tag:ex.org,2026:{number}</id><title type="html">Entry {number}</title>{link}{dates}'
    return f'<entry>{head}<content type="html">{escape(text)}</content>{more}</entry>'


def atom(*entries, more=""):
    head = f'<feed xmlns="http://www.w3.org/2005/Atom"{more}><id>urn:f</id><title>Atoms</title>'
    return f"{head}<updated>2020-01-01T00:00:00Z</updated>{''.join(entries)}</feed>".encode()


@dataclass
class Reply:
    """`raw` is sent as it is; after half of the body `hang` sends nothing more, `drip` a byte now and then, and `cut`
    closes."""

    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    raw: bytes | None = None
    hang: bool = False
    cut: bool = False
    drip: bool = False


class FeedServer:
    """`replies[path]` are given in turn, the last for ever. `requests` are (path, headers), names in lower case."""

    def __init__(self, **replies):
        self.replies = {f"/{path}": list(given) for path, given in replies.items()}
        self.requests = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    def asked(self, path):
        return [headers for asked, headers in self.requests if asked == path]

    async def _serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split(" ")[1]
            self.requests.append((path, dict(line.lower().split(": ", 1) for line in head[1:] if line)))
            replies = self.replies[path]
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
            await self._answer(writer, reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer, reply):
        headers = {"Content-Length": str(len(reply.body)), "Connection": "close", **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join([*lines, "", ""]).encode()
        body = reply.body[: len(reply.body) // 2] if reply.hang or reply.cut or reply.drip else reply.body
        writer.write(head + body if reply.raw is None else reply.raw)
        await writer.drain()
        if reply.hang:
            await asyncio.sleep(60)
        for byte in reply.body[len(body) :] if reply.drip else b"":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
