"""An answer as it streams: the same as the whole one screened, whatever the tokens; nothing before its verdict."""

import asyncio
import random

import pytest
from hard_streams import WITH_PII, WITHOUT

from safety.bias import Bias
from safety.content import Content
from safety.pii import Pii
from safety.screen import Screen
from safety.token_window import TokenWindow
from safety.verdict import Action, Surface, Verdict

SCREEN = Screen([Pii(), Content(), Bias()])
BLOCKED = "All is calm. The bridge reopens at 9:00. I will kill you and your family. Call 510-555-0130. Bye"
BIASED = "The vote is on Monday. All immigrants are criminals. Mail jane@example.com. Done."


class LocalJudge:
    """The real screen in this process. Remembers what it said: the screen is pure, and these tests ask much."""

    def __init__(self) -> None:
        self.said: dict[str, Verdict] = {}
        self.asked: list[str] = []

    async def check(self, text: str, surface: Surface) -> Verdict:
        self.asked.append(text)
        if text not in self.said:
            self.said[text] = SCREEN.check(text, surface)
        return self.said[text]


class BrokenJudge(LocalJudge):
    """Raises on its n-th question."""

    def __init__(self, broken_at: int, fault: BaseException) -> None:
        super().__init__()
        self.broken_at, self.fault = broken_at, fault

    async def check(self, text: str, surface: Surface) -> Verdict:
        if len(self.asked) == self.broken_at:
            raise self.fault
        return await super().check(text, surface)


async def streamed(judge: LocalJudge, parts: list[str]) -> tuple[str, Verdict | None, list[str]]:
    """What left, the verdict that ended it, and what had left after each push."""
    window = TokenWindow(judge)
    left = ""
    after: list[str] = []
    for part in parts:
        left += "".join(await window.push(part))
        after.append(left)
    left += "".join(await window.finish())
    return left, window.blocked, after


@pytest.mark.parametrize("text", [*WITH_PII, *WITHOUT, BIASED])
async def test_every_cut_in_two_gives_the_whole_answer_screened(text: str) -> None:
    judge = LocalJudge()
    expected = SCREEN.check(text, "answer")
    for cut in range(len(text) + 1):
        left, blocked, _ = await streamed(judge, [text[:cut], text[cut:]])
        assert (left, blocked) == (expected.text, None)


@pytest.mark.parametrize("text", [WITH_PII[0], WITH_PII[3], WITH_PII[4], BLOCKED])
async def test_every_cut_in_three_gives_the_whole_answer_screened(text: str) -> None:
    judge = LocalJudge()
    expected, blocked_whole, _ = await streamed(judge, [text])
    for first in range(len(text)):
        for second in range(first + 1, len(text)):
            left, blocked, _ = await streamed(judge, [text[:first], text[first:second], text[second:]])
            assert left == expected
            assert (blocked is None) == (blocked_whole is None)


async def test_random_tokens_never_let_a_part_of_an_identifier_out() -> None:
    judge = LocalJudge()
    chosen = random.Random(7)
    secrets = [
        "jane.doe@example.co.uk",
        "510-555-0130",
        "4111 1111 1111 1111",
        "GB82 WEST 1234 5698 7654 32",
        "460-89-9847",
    ]
    for _ in range(400):
        secret = chosen.choice(secrets)
        lead = " ".join(
            chosen.choices(["well", "so", "the answer is", "ok.", "in 2024.", "yes,"], k=chosen.randint(0, 60))
        )
        text = f"{lead} it is {secret}{chosen.choice(['.', ' now.', chr(10), ''])}"
        parts = []
        place = 0
        while place < len(text):
            size = chosen.randint(1, 6)
            parts.append(text[place : place + size])
            place += size
        left, blocked, after = await streamed(judge, parts)
        assert blocked is None and secret[:5] not in left
        assert all(secret[:5] not in seen for seen in after)
        assert left == SCREEN.check(text, "answer").text


async def test_after_a_block_nothing_leaves() -> None:
    judge = LocalJudge()
    window = TokenWindow(judge)
    left = [sentence for char in BLOCKED for sentence in await window.push(char)]
    assert "".join(left) == "All is calm. The bridge reopens at 9:00. "
    assert window.blocked is not None and window.blocked.reason == "threat"
    asked = len(judge.asked)
    assert await window.push(" One more sentence. And another.") == []
    assert await window.finish() == []
    assert len(judge.asked) == asked


async def test_sentences_before_a_block_in_one_push_leave() -> None:
    window = TokenWindow(LocalJudge())
    assert await window.push(BLOCKED) == ["All is calm.", " The bridge reopens at 9:00. "]
    assert window.blocked is not None and window.blocked.action is Action.BLOCK


@pytest.mark.parametrize("fault", [ConnectionError("gone"), asyncio.CancelledError()])
async def test_a_judge_that_fails_shuts_the_window(fault: BaseException) -> None:
    window = TokenWindow(BrokenJudge(1, fault))
    assert await window.push("First one. Second") == ["First one."]
    with pytest.raises(type(fault)):
        await window.push(" one. Third")
    assert await window.push(" one. Fourth one. ") == []
    assert await window.finish() == []
    assert window.blocked is None


async def test_nothing_is_judged_or_left_after_the_end() -> None:
    judge = LocalJudge()
    window = TokenWindow(judge)
    assert await window.push("No end") == []
    assert await window.finish() == ["No end"]
    assert await window.push(" here. And") == []
    assert await window.finish() == []
    assert judge.asked == ["No end"]


FRONTS = [
    ("Mail ana.lopez@example", "Mail "),
    ("Mail ana.lopez@example.", "Mail "),
    ("Mail ana.lopez", "Mail "),
    ("Mail ana at example", "Mail "),
    ("Card 4111 1111 1111 11", "Card "),
    ("Card 4111 1111 ", "Card "),
    ("SSN 123-45-67", "SSN "),
    ("Call +1 (510) 555-", "Call "),
    ("IBAN GB82 WEST 1234 56", "IBAN "),
    ("It is closed. Mail jane@example.com or bob@exam", "It is closed. Mail [EMAIL] or "),
    ("The bridge is clo", "The bridge is "),
]


@pytest.mark.parametrize(("written", "shown"), FRONTS)
async def test_a_cut_answer_shows_no_front_of_an_identifier(written: str, shown: str) -> None:
    judge = LocalJudge()
    for cut in range(len(written)):
        window = TokenWindow(judge)
        left = [*await window.push(written[:cut]), *await window.push(written[cut:])]
        assert "".join(left + await window.finish(())).rstrip() == shown.rstrip()


@pytest.mark.parametrize("stop", ["END", "\n", "@", "9", ".com"])
@pytest.mark.parametrize(("written", "shown"), [front for front in FRONTS if "@" in front[0] or "1" in front[0]])
async def test_nor_does_one_that_a_stop_string_may_have_cut(stop: str, written: str, shown: str) -> None:
    window = TokenWindow(LocalJudge())
    left = await window.push(written)
    assert "".join(left + await window.finish((stop,))).rstrip() == shown.rstrip()


@pytest.mark.parametrize(
    ("written", "cut_by"),
    [
        ("The bridge is closed.", ()),
        ('They said "closed."', ()),
        ("The bridge is closed.", ("END",)),
        ("- Harbour bridge", ("\n",)),
        ("\u6865\u5df2\u5173\u95ed", ()),
        ("Mail ana.lopez@example", None),
        ("SSN 123-45-67", None),
    ],
)
async def test_a_cut_takes_nothing_else(written: str, cut_by: tuple[str, ...] | None) -> None:
    window = TokenWindow(LocalJudge())
    assert "".join(await window.push(written) + await window.finish(cut_by)) == written


async def test_what_is_retracted_does_not_leave() -> None:
    window = TokenWindow(LocalJudge())
    assert await window.push("One left. Two are held") == ["One left."]
    assert window.retract(9) == 9
    assert await window.push("") == []
    assert window.retract(100) == 4
    assert await window.finish() == []
