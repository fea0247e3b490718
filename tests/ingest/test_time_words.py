"""All cases are asked on Wednesday 25 November 2026 at 15:30 in Berlin, unless they say otherwise."""

import unicodedata
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.time_lexicon import LEXICONS
from ingest.time_words import read_time_words

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 25, 15, 30, tzinfo=BERLIN)
NOW_MS = int(NOW.timestamp() * 1000)


def read(question, now=NOW):
    return read_time_words(question, int(now.timestamp() * 1000), now.tzinfo)


def span(question, now=NOW):
    """ "24.11. 00:00 - 25.11. 15:30": local time, the end to the minute that it reaches."""
    found = read(question, now)
    if found is None:
        return None
    ends = (found.since_ms, found.until_ms + (found.until_ms % 1000 == 999))
    return " - ".join(datetime.fromtimestamp(ms / 1000, now.tzinfo).strftime("%d.%m. %H:%M") for ms in ends)


TODAY = "25.11. 00:00 - 25.11. 15:30"
YESTERDAY = "24.11. 00:00 - 25.11. 00:00"
HOUR = "25.11. 14:30 - 25.11. 15:30"
SINCE_9 = "25.11. 09:00 - 25.11. 15:30"
LAST_WEEKEND = "21.11. 00:00 - 23.11. 00:00"
LAST_NIGHT = "24.11. 18:00 - 25.11. 06:00"
TWO_TO_FOUR = "25.11. 14:00 - 25.11. 15:30"  # it is not four yet
SINCE_MONDAY = "23.11. 00:00 - 25.11. 15:30"
TWO_HOURS = "25.11. 13:30 - 25.11. 15:30"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What happened in the last hour?", HOUR),
        ("harbour bridge, past 30 minutes", "25.11. 15:00 - 25.11. 15:30"),
        ("Any news on the strike since 9am?", SINCE_9),
        ("Any news on the strike since 9:00?", SINCE_9),
        ("since 9 o'clock in the morning", SINCE_9),
        ("What is new about the strike today?", TODAY),
        ("today's news on the strike", TODAY),
        ("Who won yesterday?", YESTERDAY),
        ("Yesterday's storm", YESTERDAY),
        ("What was closed the day before yesterday?", "23.11. 00:00 - 24.11. 00:00"),
        ("What happened this morning?", "25.11. 05:00 - 25.11. 12:00"),
        ("What was that noise last night?", LAST_NIGHT),
        ("Who spoke on Monday?", "23.11. 00:00 - 24.11. 00:00"),
        ("Who spoke last Wednesday?", "18.11. 00:00 - 19.11. 00:00"),
        ("Who played last weekend?", LAST_WEEKEND),
        ("Was anyone hurt between 2 and 4 pm?", TWO_TO_FOUR),
        ("from 11 to 2 pm at the harbour", "25.11. 11:00 - 25.11. 14:00"),
        ("yesterday between 2 and 4 pm", "24.11. 14:00 - 24.11. 16:00"),
        ("between 10pm and 2am", "24.11. 22:00 - 25.11. 02:00"),
        ("News on the strike since the 3rd", "03.11. 00:00 - 25.11. 15:30"),
        ("since the 30th", "30.10. 00:00 - 25.11. 15:30"),
        ("in the last 2 days", "23.11. 15:30 - 25.11. 15:30"),
        ("in the last few hours", "25.11. 12:30 - 25.11. 15:30"),
        ("What is happening right now at the harbour?", "25.11. 12:30 - 25.11. 15:30"),
        ("what happened just now", "25.11. 12:30 - 25.11. 15:30"),
        ("two hours ago at the station", "25.11. 13:00 - 25.11. 14:00"),
        ("3 days ago", "22.11. 00:00 - 23.11. 00:00"),
        ("since two hours ago", TWO_HOURS),
        ("since yesterday evening", "24.11. 17:00 - 25.11. 15:30"),
        ("since Monday", SINCE_MONDAY),
        ("last Friday night", "20.11. 18:00 - 21.11. 06:00"),
        ("What was said at 3pm?", "25.11. 14:30 - 25.11. 15:30"),
        ("at 4 pm", "24.11. 15:30 - 24.11. 16:30"),
        ("since noon", "25.11. 12:00 - 25.11. 15:30"),
        ("this week", SINCE_MONDAY),
        ("last week", "16.11. 00:00 - 23.11. 00:00"),
        ("in the past week", "18.11. 15:30 - 25.11. 15:30"),
        ("this month", "01.11. 00:00 - 25.11. 15:30"),
        ("on 3 November", "03.11. 00:00 - 04.11. 00:00"),
        ("since May 3rd", "03.05. 00:00 - 25.11. 15:30"),
        ("WHAT HAPPENED YESTERDAY AT THE BRIDGE", YESTERDAY),
        ("What Happened Yesterday At The Harbour", YESTERDAY),
        ("Yesterday, what happened?", YESTERDAY),
        ("What changed between yesterday and today?", "24.11. 00:00 - 25.11. 15:30"),
    ],
)
def test_english(question, expected):
    assert span(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("¿Qué pasó en la última hora?", HOUR),
        ("ultima hora en el puerto, que pasa", HOUR),
        ("¿Qué ha pasado desde las 9?", SINCE_9),
        ("desde las nueve de la mañana", SINCE_9),
        ("¿Qué pasó ayer en Madrid?", YESTERDAY),
        ("Hoy en Valencia, ¿qué pasó?", TODAY),
        ("¿Qué se dijo esta mañana?", "25.11. 05:00 - 25.11. 12:00"),
        ("¿Qué fue ese ruido anoche?", LAST_NIGHT),
        ("ayer por la tarde", "24.11. 12:00 - 24.11. 18:00"),
        ("el lunes en el Congreso", "23.11. 00:00 - 24.11. 00:00"),
        ("desde el lunes", SINCE_MONDAY),
        ("el fin de semana pasado", LAST_WEEKEND),
        ("entre las 2 y las 4 de la tarde", TWO_TO_FOUR),
        ("en los últimos 2 días", "23.11. 15:30 - 25.11. 15:30"),
        ("las últimas 24 horas", "24.11. 15:30 - 25.11. 15:30"),
        ("desde hace dos horas", TWO_HOURS),
        ("hace media hora", "25.11. 14:45 - 25.11. 15:15"),
        ("desde el 3", "03.11. 00:00 - 25.11. 15:30"),
        ("el 3 de mayo", "03.05. 00:00 - 04.05. 00:00"),
        ("ahora mismo en la costa", "25.11. 12:30 - 25.11. 15:30"),
        ("la semana pasada", "16.11. 00:00 - 23.11. 00:00"),
    ],
)
def test_spanish(question, expected):
    assert span(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Was ist seit 9 Uhr am Hafen los?", SINCE_9),
        ("seit neun Uhr morgens", SINCE_9),
        ("Was ist in den letzten zwei Stunden passiert?", TWO_HOURS),
        ("in der letzten Stunde", HOUR),
        ("Was war gestern Abend am Hafen?", "24.11. 17:00 - 25.11. 00:00"),
        ("Was war gestern?", YESTERDAY),
        ("Heute am Hafen", TODAY),
        ("heute früh", "25.11. 05:00 - 25.11. 12:00"),
        ("letzte Nacht", LAST_NIGHT),
        ("Wer hat am Montag gesprochen?", "23.11. 00:00 - 24.11. 00:00"),
        ("am Montagabend", "23.11. 17:00 - 24.11. 00:00"),
        ("seit Montag", SINCE_MONDAY),
        ("am letzten Wochenende", LAST_WEEKEND),
        ("zwischen 14 und 16 Uhr", TWO_TO_FOUR),
        ("vor zwei Stunden", "25.11. 13:00 - 25.11. 14:00"),
        ("vor einer halben Stunde", "25.11. 14:45 - 25.11. 15:15"),
        ("seit zwei Stunden", TWO_HOURS),
        ("seit dem 3.", "03.11. 00:00 - 25.11. 15:30"),
        ("am 3. Mai", "03.05. 00:00 - 04.05. 00:00"),
        ("gerade eben", "25.11. 12:30 - 25.11. 15:30"),
        ("in den letzten Tagen", "22.11. 15:30 - 25.11. 15:30"),
    ],
)
def test_german(question, expected):
    assert span(question) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("最近一小时港口发生了什么？", HOUR),
        ("过去的24小时", "24.11. 15:30 - 25.11. 15:30"),
        ("近三十分钟", "25.11. 15:00 - 25.11. 15:30"),
        ("昨天港口大桥怎么了", YESTERDAY),
        ("从早上9点到现在有什么新闻", SINCE_9),
        ("从早上九点开始", SINCE_9),
        ("9点以后", SINCE_9),
        ("今天下午发生了什么", "25.11. 12:00 - 25.11. 15:30"),
        ("今早", "25.11. 05:00 - 25.11. 12:00"),
        ("昨晚", LAST_NIGHT),
        ("周一谁发言了", "23.11. 00:00 - 24.11. 00:00"),
        ("自周一以来", SINCE_MONDAY),
        ("上周末", LAST_WEEKEND),
        ("下午2点到4点之间", TWO_TO_FOUR),
        ("最近两天", "23.11. 15:30 - 25.11. 15:30"),
        ("两小时前", "25.11. 13:00 - 25.11. 14:00"),
        ("从3号开始", "03.11. 00:00 - 25.11. 15:30"),
        ("5月3日以来", "03.05. 00:00 - 25.11. 15:30"),
        ("刚刚发生了什么", "25.11. 12:30 - 25.11. 15:30"),
        ("这几天", "22.11. 15:30 - 25.11. 15:30"),
        ("過去兩小時", TWO_HOURS),
    ],
)
def test_chinese(question, expected):
    assert span(question) == expected


@pytest.mark.parametrize(
    "question",
    [
        "The Last of Us finale",
        "is the last of us any good",
        "Who wrote Yesterday by the Beatles?",
        "yesterday by the beatles",
        "24 hours of Le Mans",
        "Who won the 24 Hours of Le Mans?",
        "the last hour of the Titanic",
        "the last days of Pompeii",
        "What a goal in the last minute",
        "may I ask about the bridge",
        "What did Theresa May say?",
        "the march on the capital",
        "Did Chris Hoy win gold?",
        "usa today on the strike",
        "What does USA Today say?",
        "Friday Night Lights",
        "what about friday night lights",
        "Black Friday prices",
        "since 9/11 what changed",
        "since 2019",
        "since the 3rd goal",
        "between 2 and 4 people",
        "since 9 people came",
        "the day after tomorrow",
        "What will happen tomorrow?",
        "next Monday",
        "a last-minute deal",
        "#today and @yesterday",
        "https://example.org/today",
        "every 2 hours",
        "noticias de última hora sobre el puente",
        "un gol a última hora",
        "hoy en día todo es caro",
        "el próximo lunes",
        "Was sagt die heute-show?",
        "Schnee von gestern",
        "die letzten Tage der Menschheit",
        "附近30分钟的医院",
        "以前天气怎么样",
        "今日头条怎么样",
        "下周一开会",
        "明天",
        "",
        "?",
        "at 25:00",
        "on 31 February",
        "last 99999999999 days",
    ],
)
def test_no_time_and_no_past_time(question):
    assert read(question) is None


@pytest.mark.parametrize(
    "question",
    [
        'Who sings "yesterday"?',
        "Who sings “yesterday”?",
        "Who sings 'yesterday'?",
        "Wer singt „gestern“?",
        "《昨天》这首歌",
        "「昨天」",
        "¿Quién canta «ayer»?",
    ],
)
def test_quoted_text_is_left_alone(question):
    assert read(question) is None


def test_the_words_and_the_rest_of_the_question():
    found = read("What happened at the bridge in the last hour, and why?")
    assert found.words == "in the last hour"
    assert found.rest == "What happened at the bridge, and why?"
    assert read("昨天港口大桥怎么了").rest == "港口大桥怎么了"
    assert read("Yesterday").rest == ""


def test_letters_written_with_combining_accents_are_read_too():
    question = unicodedata.normalize("NFD", "¿Qué pasó en la última hora en Málaga?")
    found = read(question)
    assert found.words == unicodedata.normalize("NFD", "en la última hora")
    assert found.rest == unicodedata.normalize("NFD", "¿Qué pasó en Málaga?")


@pytest.mark.parametrize(
    ("now", "question", "hours"),
    [
        (datetime(2026, 3, 30, 12, tzinfo=BERLIN), "yesterday", 23),
        (datetime(2026, 10, 26, 12, tzinfo=BERLIN), "yesterday", 25),
        (datetime(2026, 3, 29, 12, tzinfo=BERLIN), "in the last 24 hours", 24),
        (datetime(2026, 10, 25, 12, tzinfo=BERLIN), "in den letzten 24 Stunden", 24),
        (datetime(2026, 10, 25, 12, tzinfo=BERLIN), "since midnight", 13),
        (datetime(2026, 3, 29, 12, tzinfo=BERLIN), "今天", 11),
        (datetime(2026, 11, 25, 12, tzinfo=ZoneInfo("Asia/Kathmandu")), "today", 12),
    ],
)
def test_days_are_those_of_the_zone_even_when_the_clocks_change(now, question, hours):
    found = read(question, now)
    assert found.until_ms + (found.until_ms % 1000 == 999) - found.since_ms == hours * 3_600_000


def test_the_same_moment_is_another_day_elsewhere():
    tokyo = datetime.fromtimestamp(NOW_MS / 1000, ZoneInfo("Asia/Tokyo"))
    honolulu = datetime.fromtimestamp(NOW_MS / 1000, ZoneInfo("Pacific/Honolulu"))
    assert read("yesterday", tokyo).since_ms - read("yesterday", honolulu).since_ms == -19 * 3_600_000


def test_tonight_after_midnight_is_the_night_that_goes_on():
    assert span("tonight", datetime(2026, 11, 25, 1, 30, tzinfo=BERLIN)) == "24.11. 17:00 - 25.11. 00:00"
    assert span("tonight", datetime(2026, 11, 25, 20, tzinfo=BERLIN)) == "25.11. 17:00 - 25.11. 20:00"
    assert read("tonight") is None  # at half past three it is still to come


TABLES = ("number", "unit", "day", "day_part", "span", "weekday", "half")
WORDS = sorted({word for lexicon in LEXICONS for name in TABLES for word in getattr(lexicon, name)})
GLUE = ["since", "the last", "last", "past", "ago", "between", "and", "on", "at", "desde", "hace", "entre las", "y las",
        "últimas", "seit", "in den letzten", "vor", "zwischen", "und", "Uhr", "最近", "从", "到", "点", "前", "bridge",
        "9", "12:30", "3rd", "2026", "99", "\U0001f600", "'", '"', "。", " "]  # fmt: skip
pieces = st.lists(st.one_of(st.sampled_from(WORDS), st.sampled_from(GLUE), st.text(max_size=4)), max_size=9)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(microsecond=0))
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"]
)


@given(pieces, moments, zones, st.sampled_from(["", " "]))
def test_never_in_the_future_never_backwards_and_nothing_is_lost(words, moment, zone, glue):
    question = glue.join(words)
    now_ms = int(moment.replace(tzinfo=ZoneInfo("UTC")).timestamp() * 1000)
    found = read_time_words(question, now_ms, ZoneInfo(zone))
    if found is not None:
        assert found.since_ms <= found.until_ms <= now_ms
        assert all(phrase in question for phrase in found.words.split(", "))
        kept = sorted("".join(found.words.split(", ")) + found.rest)
        assert [c for c in kept if not c.isspace() and c != ","] == [
            c for c in sorted(question) if not c.isspace() and c != ","
        ]


def test_only_the_beginning_of_a_very_long_question_is_read():
    assert read("x " * 5000 + "yesterday") is None
    assert read("yesterday " + "x " * 5000).words == "yesterday"


@pytest.mark.parametrize("filler", [" ", "\u00a0", "\u00a8", " \u0301", "\n"])
def test_a_long_run_of_white_space_does_not_hold_the_event_loop_up(filler):
    question = "since" + (filler * 1900)[:1900] + "9am"
    assert read("bridge " + question).rest == "bridge"  # took a minute before runs were folded into one


@pytest.mark.parametrize(
    "question",
    [
        "What happened before yesterday?",
        "the storm, until last week",
        "not today",
        "hasta hoy",
        "bis gestern",
        "\u00daltima hora: terremoto",
        "since 9am EST",
        "since 9am UTC",
    ],
)
def test_what_lies_before_a_time_or_in_another_zone_is_not_taken_for_that_time(question):
    assert span(question) is None


def test_three_days_ago_in_chinese_is_not_two():
    assert span("\u5927\u524d\u5929\u7684\u5730\u9707") == "22.11. 00:00 - 23.11. 00:00"
