"""What the stream and REST say together: each post in order and once, consent of accounts, and where to go on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.post import AccountChange, Malformed, Post, Removal
from ingest.sources.aliases import Aliases
from ingest.sources.mastodon import Message
from ingest.sources.mastodon_intake import Intake
from ingest.sources.mastodon_recent import Recent, Trail
from tests.ingest.sources.mastodon_made import EDITED, EDITED_US, HOST, NOW_MS, account, local_id, post_id, read, status

OVERLAP_MS = 60_000
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Intake]:
    with Aliases(tmp_path / "aliases.sqlite") as aliases:
        yield Intake(HOST, aliases, True, OVERLAP_MS, 40 * DAY_MS)


def taken(intake, event, payload, now_ms=NOW_MS):
    arrival = intake.arrival(Message(event, payload, now_ms))
    return arrival.records if arrival else ()


def update(intake, number=1, now_ms=NOW_MS, event="update", **fields):

    return taken(intake, event, json.dumps(status(number, **fields)), now_ms)


def cursor(intake, number, now_ms):

    arrival = intake.arrival(Message("update", json.dumps(status(number)), now_ms))
    return arrival.cursor if arrival else None


class TestRecords:
    def test_t18_a_post_that_came_can_be_deleted(self, intake: Intake) -> None:
        update(intake)
        assert taken(intake, "delete", local_id(), NOW_MS + 5) == (Removal(post_id(), (NOW_MS + 5) * 1000),)

    def test_t6_what_was_deleted_does_not_come_again(self, intake: Intake) -> None:
        """REST may have read the status a moment before its deletion came over the stream."""
        assert taken(intake, "delete", local_id()) == ()
        assert update(intake) == ()
        assert intake.stats.skipped["delete_of_unknown"] == 1

    def test_the_same_again_is_dropped_and_counted(self, intake: Intake) -> None:
        assert len(update(intake)) == 1
        assert update(intake, now_ms=NOW_MS + 1000) == ()
        assert update(intake, event="status.update") == ()
        assert intake.stats.repeated == 2
        assert intake.stats.events == 3

    def test_a_change_that_is_no_edit_comes_through(self, intake: Intake) -> None:
        update(intake)
        (post,) = update(intake, event="status.update", favourites_count=5)
        assert isinstance(post, Post) and post.likes == 5

    def test_t5_an_older_version_than_one_that_came_is_dropped(self, intake: Intake) -> None:
        update(intake, event="status.update", edited_at=EDITED)
        assert update(intake) == ()

    def test_an_edit_to_private_takes_the_post_away(self, intake: Intake) -> None:
        update(intake)
        gone = update(intake, event="status.update", visibility="private", edited_at=EDITED)
        assert gone == (Removal(post_id(), EDITED_US, "consent", if_newer=True),)

    def test_a_reply_finds_the_post_it_replies_to(self, intake: Intake) -> None:
        update(intake)
        (reply,) = update(intake, 2, in_reply_to_id=local_id(1))
        assert isinstance(reply, Post) and reply.reply_to == post_id(1)

    def test_what_cannot_be_read_is_counted_and_handed_on(self, intake: Intake) -> None:
        assert taken(intake, "update", "{") == (Malformed("json"),)
        assert intake.stats.malformed == {"json": 1}

    def test_aliases_expire(self, intake: Intake) -> None:
        update(intake)
        update(intake, 2, now_ms=NOW_MS + 41 * DAY_MS)
        assert taken(intake, "delete", local_id(1), NOW_MS + 41 * DAY_MS) == ()
        assert taken(intake, "delete", local_id(2), NOW_MS + 41 * DAY_MS)

    def test_a_late_status_says_how_late(self, intake: Intake) -> None:
        update(intake, now_ms=NOW_MS + 3000)
        assert intake.stats.lag_ms == 4000


class TestAccounts:
    WISH = account(indexable=False)

    def test_who_opts_out_takes_earlier_posts_along_and_who_opts_in_brings_them_back(self, intake: Intake) -> None:
        update(intake, 1)
        hidden = AccountChange("mastodon", "https://ex.social/users/a", "hidden", NOW_MS * 1000, "indexable")
        assert update(intake, 2, account=self.WISH) == (hidden,)
        assert update(intake, 3, account=self.WISH) == ()
        later_ms = NOW_MS + 1000
        active, post = update(intake, 4, now_ms=later_ms)
        assert active == AccountChange("mastodon", "https://ex.social/users/a", "active", later_ms * 1000)
        assert isinstance(post, Post)

    def test_who_never_opted_in_is_not_told_of(self, intake: Intake) -> None:
        assert update(intake, 1, account=self.WISH) == ()
        assert len(update(intake, 2)) == 1

    def test_a_private_post_says_nothing_of_the_account(self, intake: Intake) -> None:
        update(intake, 1)
        assert update(intake, 2, visibility="private") == ()


class TestCursor:
    def test_it_stays_an_overlap_behind_and_never_goes_back(self, intake: Intake) -> None:
        intake.resume(None, NOW_MS)
        assert cursor(intake, 10, NOW_MS) == f"{HOST}:{local_id(10)}"
        assert cursor(intake, 20, NOW_MS + 10_000) == f"{HOST}:{local_id(10)}"
        assert cursor(intake, 15, NOW_MS + 20_000) == f"{HOST}:{local_id(10)}"
        assert cursor(intake, 30, NOW_MS + 70_001) == f"{HOST}:{local_id(20)}"

    def test_it_follows_the_filling_while_a_gap_is_filled(self, intake: Intake) -> None:
        intake.resume(f"{HOST}:{local_id(1)}", NOW_MS)
        assert intake.gap_begins(NOW_MS) == local_id(1)
        later_ms = NOW_MS + 2 * OVERLAP_MS
        assert cursor(intake, 50, later_ms) == f"{HOST}:{local_id(1)}"
        intake.filled_to(local_id(20), later_ms)
        assert cursor(intake, 51, later_ms + OVERLAP_MS) == f"{HOST}:{local_id(20)}"
        intake.gap_ends(later_ms + OVERLAP_MS)
        assert cursor(intake, 52, later_ms + 3 * OVERLAP_MS) == f"{HOST}:{local_id(51)}"

    @pytest.mark.parametrize("given", [None, "", "other.example:1", HOST, f"{HOST}:", f"{HOST}:a b", "\ud800:1"])
    def test_a_cursor_that_is_none_of_this_host_fills_nothing(self, intake: Intake, given: str | None) -> None:
        intake.resume(given, NOW_MS)
        assert intake.gap_begins(NOW_MS) is None

    def test_the_host_may_have_a_port(self, tmp_path: Path) -> None:
        with Aliases(tmp_path / "aliases.sqlite") as aliases:
            intake = Intake("127.0.0.1:8080", aliases, True, OVERLAP_MS, DAY_MS)
            intake.resume("127.0.0.1:8080:77", NOW_MS)
            assert intake.gap_begins(NOW_MS) == "77"

    def test_what_makes_no_record_moves_the_cursor_too(self, intake: Intake) -> None:

        intake.resume(None, NOW_MS)
        unwanted = json.dumps(status(3, account=account(indexable=False)))
        arrival = intake.arrival(Message("update", unwanted, NOW_MS))
        assert arrival is not None
        assert (arrival.records, arrival.cursor) == ((), f"{HOST}:{local_id(3)}")

    def test_edits_and_deletions_have_old_ids_and_leave_it_alone(self, intake: Intake) -> None:
        intake.resume(f"{HOST}:{local_id(5)}", NOW_MS)
        later_ms = NOW_MS + 2 * OVERLAP_MS
        update(intake, 9, now_ms=later_ms, event="status.update")
        taken(intake, "delete", local_id(9), later_ms)
        assert intake.gap_begins(later_ms) == local_id(5)

    def test_the_latest_local_ids(self, intake: Intake) -> None:
        for number in range(1, 6):
            update(intake, number, now_ms=NOW_MS + number)
        assert intake.latest(2) == [local_id(5), local_id(4)]


@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 50)), max_size=60))
def test_a_trail_goes_on_from_what_was_the_newest_an_overlap_ago(steps: list[tuple[int, int]]) -> None:
    """Compared with a list of everything; at most one step of a second is lost between."""
    trail, seen = Trail(OVERLAP_MS), []
    for now_ms, number in sorted(steps, key=lambda step: step[0]):
        trail.add(f"{number:03d}", now_ms)
        seen.append((now_ms, f"{number:03d}"))
        resumed = trail.resume_from(now_ms)
        before = [name for at_ms, name in seen if at_ms <= now_ms - OVERLAP_MS]
        assert resumed is not None
        assert resumed in [name for _, name in seen]
        assert resumed <= max(before, default=seen[0][1])
        much_before = [name for at_ms, name in seen if at_ms <= now_ms - OVERLAP_MS - 2000]
        assert resumed >= max(much_before, default="")


def test_a_trail_of_a_busy_instance_is_short() -> None:
    trail = Trail(OVERLAP_MS)
    for number in range(100_000, 130_000):
        trail.add(str(number), number * 10)
        trail.resume_from(number * 10)
    assert len(trail._newest) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["update", "status.update", "delete"]), st.integers(1, 3), st.integers(0, 3)),
        max_size=30,
    )
)
def test_of_each_post_only_newer_versions_pass_and_nothing_after_its_deletion(
    events: list[tuple[str, int, int]],
) -> None:
    recent, newest, deleted = Recent(), {}, set()
    for event, number, minute in events:
        if event == "delete":
            recent.new_in(read("delete", local_id(number), known=[number]))
            deleted.add(number)
            continue
        edited = f"2026-07-04T10:{minute + 1:02d}:00.000Z" if minute else None
        passed = recent.new_in(read(event, status(number, edited_at=edited)))
        expected = number not in deleted and minute > newest.get(number, -1)
        assert bool(passed) == expected
        if expected:
            newest[number] = minute
