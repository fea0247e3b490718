"""The day's budget for X: never over either limit, whatever the order, whoever shares it."""

import multiprocessing
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.sources.budget import Budget

DAY_S = 86_400
NOON_S = 1_783_166_400.0  # 2026-07-04T12:00:00Z


class Clock:
    def __init__(self, now_s=NOON_S):
        self.now_s = now_s

    def __call__(self):
        return self.now_s


def budget(tmp_path, posts=100, usd=1e6, price=0.005, clock=None):
    return Budget(tmp_path / "x" / "budget.sqlite", posts, usd, price, clock or Clock())


def test_what_was_not_used_may_be_spent_again(tmp_path):
    mine = budget(tmp_path)
    reservation = mine.reserve("stream", 70)
    assert mine.reserve("search", 11) is None, "20 of 100 are for look-ups"
    mine.settle(reservation, 5)
    assert mine.reserve("search", 11).posts == 11
    spent = mine.spent()
    assert (spent.day, spent.posts, spent.posts_left) == ("2026-07-04", 16, 84)
    assert spent.usd == pytest.approx(0.08) and spent.usd_left == pytest.approx(1e6 - 0.08)
    assert spent.by_purpose == {"stream": 5, "search": 11}


def test_money_runs_out_before_posts(tmp_path):
    mine = budget(tmp_path, posts=1000, usd=0.10, price=0.005)  # 20 posts, 4 of them for look-ups
    assert mine.reserve("search", 17) is None
    assert mine.reserve("search", 50, least=10).posts == 16
    assert mine.reserve("search", 1) is None
    assert mine.spent().usd_left == pytest.approx(0.02)


def test_as_many_as_there_are_but_no_fewer_than_are_of_use(tmp_path):
    mine = budget(tmp_path, posts=100)
    assert mine.reserve("stream", 75).posts == 75
    assert mine.reserve("stream", 20, least=6) is None
    assert mine.reserve("stream", 20, least=5).posts == 5


def test_look_ups_have_a_fifth_of_their_own_and_no_more(tmp_path):
    mine = budget(tmp_path, posts=100)
    first = mine.reserve("recheck", 8)
    assert mine.reserve("stream", 100, least=1).posts == 80, "what look-ups have spent of their fifth is not kept twice"
    assert mine.reserve("recheck", 100, least=1).posts == 12
    assert mine.reserve("recheck", 1) is None and mine.reserve("stream", 1) is None
    mine.settle(first, 0)
    assert mine.reserve("stream", 1) is None and mine.reserve("recheck", 8).posts == 8


def test_a_new_day_begins_at_midnight_utc_and_leaves_yesterday_as_it_was(tmp_path):
    clock = Clock(NOON_S + DAY_S / 2 - 1)
    mine = budget(tmp_path, clock=clock)
    reservation = mine.reserve("stream", 80)
    assert mine.reserve("stream", 1) is None and mine.until_tomorrow_s() == pytest.approx(1)
    clock.now_s += 1
    assert not mine.is_of_today(reservation) and mine.spent().posts == 0 and mine.spent().day == "2026-07-05"
    assert mine.until_tomorrow_s() == DAY_S
    today = mine.reserve("stream", 80)
    mine.settle(reservation, 0)
    assert mine.is_of_today(today) and mine.spent().posts == 80, "yesterday's refund is not today's"


def test_what_came_beyond_a_reservation_is_counted_too(tmp_path):
    mine = budget(tmp_path, posts=10)
    mine.settle(mine.reserve("stream", 8), 11)
    assert mine.spent().posts == 11 and mine.spent().posts_left == 0
    assert mine.reserve("stream", 1) is None and mine.reserve("recheck", 1) is None


def test_it_is_kept_on_disk(tmp_path):
    budget(tmp_path).reserve("search", 42)
    assert budget(tmp_path).spent().posts == 42
    assert budget(tmp_path, posts=1000).reserve("search", 758).posts == 758, "the limit is the settings' of now"


def test_a_price_of_nothing_leaves_only_the_limit_of_posts(tmp_path):
    assert budget(tmp_path, posts=10, usd=0, price=0).reserve("search", 8).posts == 8
    assert budget(tmp_path, posts=10, usd=0, price=0.01).reserve("search", 1) is None


@pytest.mark.parametrize("limits", [(-1, 1, 1), (1, float("nan"), 1), (1, -0.1, 1), (1, 1, float("nan")), (1, 1, -1),
                                    (1, float("inf"), 1), (float("nan"), 1, 1), (1.5, 1, 1), (10**30, 1, 1)]
)  # fmt: skip
def test_limits_that_are_none_are_refused(tmp_path, limits):
    with pytest.raises(ValueError):
        Budget(tmp_path / "b", *limits, Clock())


@pytest.mark.parametrize(("most", "least"), [(0, None), (-5, None), (5, 0), (5, 6), (float("nan"), None), (2**70, 1)])
def test_amounts_that_are_none_are_refused(tmp_path, most, least):
    mine = budget(tmp_path)
    with pytest.raises(ValueError):
        mine.reserve("search", most, least=least)
    with pytest.raises(ValueError):
        mine.settle(mine.reserve("search", 5), float("nan"))
    assert mine.spent().posts == 5


def test_a_file_that_cannot_be_read_lets_nobody_spend(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "budget.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.Error):
        budget(tmp_path).reserve("search", 1)


def _spend(path, times, together):
    mine = Budget(path, 1000, 1e6, 0.001, Clock())
    together.wait()
    for _ in range(times):
        reservation = mine.reserve("search", 7)
        if reservation is not None:
            mine.settle(reservation, 5)


def test_two_processes_share_one_count(tmp_path):
    path = tmp_path / "budget.sqlite"
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    workers = [context.Process(target=_spend, args=(path, 75, together)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert Budget(path, 1000, 1e6, 0.001, Clock()).spent().posts == 2 * 75 * 5


class AnyOrder(RuleBasedStateMachine):
    """Two users of one file against a plain count."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.open = []
        self.spent = {}

    @initialize(posts=st.integers(0, 60), cents=st.integers(0, 60), price=st.sampled_from([0.0, 0.003, 0.01, 0.33]))
    def begin(self, posts, cents, price):
        self.posts, self.usd, self.price = posts, cents / 100, price
        path = Path(self.folder.name) / "budget.sqlite"
        self.budgets = [Budget(path, posts, self.usd, price, self.clock) for _ in range(2)]

    @rule(
        who=st.integers(0, 1),
        purpose=st.sampled_from(["stream", "search", "recheck"]),
        amounts=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    )
    def reserve(self, who, purpose, amounts):
        reservation = self.budgets[who].reserve(purpose, max(amounts), least=min(amounts))
        if reservation is not None:
            assert min(amounts) <= reservation.posts <= max(amounts)
            self.open.append(reservation)
            self.spent[reservation.day] = self.spent.get(reservation.day, 0) + reservation.posts

    @precondition(lambda self: self.open)
    @rule(who=st.integers(0, 1), data=st.data())
    def settle(self, who, data):
        reservation = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        used = data.draw(st.integers(0, reservation.posts))
        self.budgets[who].settle(reservation, used)
        self.spent[reservation.day] -= reservation.posts - used

    @rule(hours=st.sampled_from([-13, 1, 5, 30]))
    def time_passes(self, hours):
        self.clock.now_s += hours * 3600

    @invariant()
    def never_over(self):
        if not hasattr(self, "budgets"):
            return
        for mine in self.budgets:
            spent = mine.spent()
            assert spent.posts == self.spent.get(spent.day, 0) <= self.posts
            assert spent.usd == pytest.approx(spent.posts * self.price) and spent.usd <= self.usd + 1e-9
            assert spent.by_purpose.get("recheck", 0) <= self.posts // 5

    def teardown(self):
        self.folder.cleanup()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
