import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Chromium, Tab
from scripted_chat import KEY, ONE, SCRIPT, TWO, citation, client, scripted_app, served

from services.events import Delta, Done, Failed, Marked, Notice, Searching, Sources
from services.http import WEB

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.mark.parametrize("path", ["/", *(f"/{path.name}" for path in WEB.iterdir() if path.name != "index.html")])
async def test_every_file_is_served_with_a_policy(path: str):
    app, _ = scripted_app()
    async with client(app) as http:
        response = await http.get(path)
        kinds = {"": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(kinds[path.rpartition(".")[2] if "." in path else ""])
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        again = await http.get(path, headers={"if-none-match": response.headers["etag"]})
        assert again.status_code == 304 and not again.content
        assert (await http.head(path)).status_code == 200


@pytest.mark.parametrize("path", sorted(WEB.iterdir()), ids=lambda path: path.name)
def test_no_file_reaches_out_or_runs_data(path: Path):
    source = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://\w", source), "no address outside this service"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc", source)
    assert not re.search(r"\bon(click|load|error|submit)\s*=\s*[\"']|<script>|<style|style=\"|javascript:", source)


def test_every_file_the_page_names_exists():
    page = (WEB / "index.html").read_text()
    scripts = "".join(path.read_text() for path in WEB.glob("*.js"))
    named = re.findall(r"(?:src|href)=\"([\w.]+\.\w+)\"", page) + re.findall(r"from \"\./([\w.]+)\"", scripts)
    assert {"app.js", "style.css", "stream.js", "answer.js"} <= set(named)
    assert all((WEB / name).is_file() for name in named)
    ids = re.findall(r"\"([a-z]+(?:-[a-z]+)?)\",?", re.search(r"const \[log.*?\]\.map", scripts, re.S)[0])  # type: ignore[index]
    assert ids and all(f'id="{id}"' in page for id in ids)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@asynccontextmanager
async def page(chromium: Chromium, script: Any, **options: Any) -> AsyncIterator[tuple[Tab, Any]]:
    app, chat = scripted_app(script, **options)
    async with served(app) as port, chromium.tab() as tab:
        await tab.open(f"http://127.0.0.1:{port}/")
        await tab.until("document.querySelector('#feed-text').textContent !== 'connecting'")
        yield tab, chat
        assert all(url.startswith((f"http://127.0.0.1:{port}/", "data:")) for url in tab.requested), tab.requested


async def type_question(tab: Tab, text: str) -> None:
    await tab.run("document.querySelector('#question').focus()")
    await tab.send("Input.insertText", text=text)
    for kind in ("rawKeyDown", "char", "keyUp"):
        await tab.send("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text="\r")


def shown(selector: str) -> str:
    return f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)"


@needs_browser
async def test_asking_shows_words_as_they_come_then_the_posts_behind_them(chromium: Chromium):
    script = [*SCRIPT[:2], 0.3, SCRIPT[2], 0.3, *SCRIPT[3:]]
    async with page(chromium, script) as (tab, chat):
        assert "1,204 posts" in await tab.run("document.querySelector('#feed-text').textContent")
        await type_question(tab, "Is the bridge open?")
        await tab.until("document.querySelector('.status').textContent.startsWith('Reading 2 posts')")
        await tab.until("document.querySelector('.text').textContent === '\\u{1F680} The bridge is '")
        await tab.until("document.querySelector('.facts')")
        assert await tab.run("document.querySelector('.text').textContent") == "\N{ROCKET} The bridge is shut. 1"
        label = await tab.run("document.querySelector('.chip').getAttribute('aria-label')")
        assert re.fullmatch(rf"Source 1: {re.escape(ONE.title)}, \d+ \w+ ago", label)
        assert await tab.run(shown(".sources > .cards .name")) == [ONE.author_name]
        assert await tab.run(shown(".sources > .cards .handle")) == [f"@{ONE.author_handle}"]
        assert await tab.run(shown(".sources details .name")) == [TWO.author_name], "read, not cited"
        assert await tab.run("document.querySelector('.cards time').dateTime") == "2026-11-30T00:53:20+00:00"
        link = "document.querySelector('.cards a')"
        assert await tab.run(f"[{link}.href, {link}.rel]") == [ONE.url, "noopener noreferrer nofollow"]
        await tab.run("document.querySelector('.chip').click()")
        assert await tab.run("document.activeElement.id") == "answer-1-1", "the chip leads to its card"
        await type_question(tab, "And now?")
        await tab.until("document.querySelectorAll('.facts').length === 2")
        assert [message.role for message in chat.requests[1].messages] == ["user", "assistant", "user"]
        assert tab.complaints == []


@needs_browser
async def test_what_strangers_write_stays_text(chromium: Chromium):
    evil = "<img src=//evil.example/x onerror=document.title='owned'><script>document.title='owned'</script>"
    post = citation(
        1, author_name=evil, author_handle=evil, title=evil, snippet=evil, url="javascript:document.title='owned'"
    )
    words = f"{evil} ![](http://evil.example/?q=1) [x](javascript:alert(1)) "
    mark = Marked(post, len(words), len(words) + 3)
    script = [Sources((post,), 1), Delta(words + "[1]", (mark,)), Notice("x", evil), Done("stop", 1, 1, (post,), 1)]
    async with page(chromium, script) as (tab, _):
        await type_question(tab, evil)
        await tab.until("document.querySelector('.facts')")
        assert await tab.run("document.querySelector('.text').textContent") == words + "1"
        assert await tab.run("document.querySelectorAll('#log img, #log script, #log .cards a').length") == 0
        assert await tab.run("document.title") == "Groundswell"
        assert await tab.run("document.querySelector('.cards .name').tagName") == "BDI"
        assert tab.complaints == []


@needs_browser
async def test_stopping_keeps_the_words_and_ends_the_chat(chromium: Chromium):
    async with page(chromium, [Sources((ONE,), 1), Delta("It is "), 3600]) as (tab, chat):
        await type_question(tab, "Is it open?")
        await tab.until("document.querySelector('.text').textContent === 'It is '")
        await tab.run("document.querySelector('#stop').click()")
        async with asyncio.timeout(5):
            await chat.closed.wait()
        await tab.until("document.querySelector('.note').textContent === 'Stopped.'")
        assert await tab.run("document.querySelector('.text').textContent") == "It is "
        assert await tab.run("document.querySelector('#stop').hidden && !document.querySelector('#send').hidden")


@needs_browser
@pytest.mark.parametrize("words", [[], [Searching(3)], [Sources((ONE,), 1), Delta("It is ")]])
async def test_a_failure_is_shown_with_its_reason_and_request_id(chromium: Chromium, words: list[Any]):
    fault = Failed(503, "overloaded", "queue_full", "Too many questions are waiting.", retry_after_s=1)
    async with page(chromium, [*words, fault]) as (tab, chat):
        await type_question(tab, "Is it open?")
        await tab.until("document.querySelector('.fault button')?.textContent === 'Try again in 1 s'")
        said = await tab.run("document.querySelector('[role=alert].fault').textContent")
        assert "Too many questions are waiting." in said and "queue_full" in said and "req_" in said
        chat.script = SCRIPT
        await tab.until("!document.querySelector('.fault button').disabled")
        await tab.run("document.querySelector('.fault button').click()")
        await tab.until("document.querySelector('.facts')")
        assert await tab.run("document.querySelectorAll('article').length") == 1


@needs_browser
async def test_a_removed_post_loses_its_link(chromium: Chromium):
    mark = Marked(ONE, 2, 5)
    notice, done = Notice("post_removed", "No longer available: [1]."), Done("stop", 1, 1, removed=(1,))
    async with page(chromium, [Sources((ONE,), 1), Delta("a [1]", (mark,)), notice, done]) as (tab, _):
        await type_question(tab, "Is it open?")
        await tab.until("document.querySelector('.facts')")
        assert await tab.run(shown(".gone")) == ["1"] and await tab.run(shown(".chip, .cards li")) == []
        assert await tab.run(shown(".note")) == [notice.message]


@needs_browser
async def test_a_question_that_was_refused_does_not_go_along_with_the_next(chromium: Chromium):
    refused = [Delta("I can't help with this request."), Done("content_filter", 0, 0, filter_reason="threat")]
    async with page(chromium, refused) as (tab, chat):
        await type_question(tab, "Something forbidden")
        await tab.until("document.querySelector('.facts')")
        chat.script = SCRIPT
        await type_question(tab, "Is it open?")
        await tab.until("document.querySelectorAll('.facts').length === 2")
        assert [message.text for message in chat.requests[1].messages] == ["Is it open?"]
        await type_question(tab, "And now?")
        await tab.until("document.querySelectorAll('.facts').length === 3")
        assert [message.role for message in chat.requests[2].messages] == ["user", "assistant", "user"]


@needs_browser
async def test_try_again_waits_for_the_answer_that_is_running(chromium: Chromium):
    async with page(chromium, [Failed(500, "server_error", "generation_failed", "It broke.")]) as (tab, chat):
        await type_question(tab, "Is it open?")
        await tab.until("document.querySelector('.fault button')")
        chat.script = [Sources((ONE,), 1), Delta("It is "), 3600]
        await type_question(tab, "And now?")
        await tab.until("[...document.querySelectorAll('.text')].some((one) => one.textContent === 'It is ')")
        await tab.run("document.querySelector('.fault button').click()")
        assert await tab.run("document.querySelectorAll('article').length") == 2, "the failed one stays"
        await tab.run("document.querySelector('#stop').click()")
        await tab.until("document.querySelector('#stop').hidden")
        assert len(chat.requests) == 2
        chat.script = SCRIPT
        await tab.run("document.querySelector('.fault button').click()")
        await tab.until("document.querySelector('.facts')")
        assert len(chat.requests) == 3


@needs_browser
async def test_a_key_is_asked_for_only_when_needed_and_kept_in_the_tab(chromium: Chromium):
    async with page(chromium, SCRIPT, keys=True) as (tab, chat):
        assert await tab.run("!document.querySelector('#key-dialog').open")
        await type_question(tab, "Is it open?")
        await tab.until("document.querySelector('#key-dialog').open")
        enter = "(document.querySelector('#key').value = {key!r}, document.querySelector('#key-form').requestSubmit())"
        await tab.run(enter.format(key="sk-wrong"))
        await tab.until("!document.querySelector('#key-fault').hidden && document.querySelector('#key-dialog').open")
        await tab.run(enter.format(key=KEY))
        await tab.until("document.querySelector('.facts')")
        assert len(chat.requests) == 1 and await tab.run("document.querySelectorAll('article').length") == 1
        assert await tab.run("sessionStorage.getItem('groundswell-key')") == KEY
        assert await tab.run("localStorage.length") == 0 and KEY not in await tab.run("location.href")


@needs_browser
async def test_a_stream_cut_before_its_end_is_not_taken_for_an_answer(chromium: Chromium):
    async with page(chromium, SCRIPT) as (tab, _):
        verdict = """(async () => {
          const { chunks } = await import("/stream.js");
          const read = async (...parts) => {
            const bytes = parts.map((part) => (typeof part === "string" ? new TextEncoder().encode(part) : part));
            const body = new ReadableStream({ start(c) { bytes.forEach((part) => c.enqueue(part)); c.close(); } });
            const found = [];
            try {
              for await (const chunk of chunks(body, "r")) found.push(chunk);
            } catch (fault) { found.push(fault.code); }
            return found;
          };
          const rocket = new TextEncoder().encode('data: {"a":"\\u{1F680}"}\\n\\n');
          return [
            await read('data: {"a":1}\\n\\n'),
            await read('data: {"a"', ':1}\\n', '\\n: keep-alive\\n', 'data: [DO', 'NE]\\n\\n'),
            await read(rocket.slice(0, 13), rocket.slice(13), 'data: {"error":{"message":"m","code":"c"}}\\n\\n'),
          ];
        })()"""
        assert await tab.run(verdict) == [
            [{"a": 1}, "broken_off"],
            [{"a": 1}],
            [{"a": "\N{ROCKET}"}, "c"],
        ]
