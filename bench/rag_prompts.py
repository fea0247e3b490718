"""Questions with the posts that a search would find for them, as the service puts them into a prompt: ten invented
stories of five posts, two questions about each, and two requests to quote."""

from collections.abc import Sequence

from bench.prompts import Renders
from ingest.post import Match
from services.compose import compose
from services.events import Message

NOW_MS = 1_700_000_000_000
STORIES: tuple[tuple[tuple[str, str], tuple[tuple[str, str], ...]], ...] = (
    (
        ("Why are trams late in Lower Marl today?", "When does line 4 run again?"),
        (
            (
                "marl_transit",
                "Line 4 is stopped between Lower Marl and Pier Road since 8:15 because of a cracked rail.",
            ),
            ("ana.k", "Third tram in a row that turns round at the mill. They say line 4 will not run before 14:00."),
            ("dorian", "Replacement buses leave from the church in Lower Marl every 12 minutes, platform B."),
            ("citydesk", "The rail cracked in the cold night, minus 11 degrees at the depot, says the transit office."),
            ("pim", "Line 6 takes line 4 tickets all day. Nobody told the inspectors on the first tram, though."),
        ),
    ),
    (
        ("What is known about the fire at the Osier warehouse?", "Was anybody hurt in the fire?"),
        (
            (
                "fire_osier",
                "The fire in the warehouse on Osier Lane is under control since 3:40. 62 people were on duty.",
            ),
            ("nightshift", "Smoke over half the harbour, keep your windows shut if you live south of the canal."),
            (
                "harbour_news",
                "Two firefighters were treated for smoke and have left the hospital. Nobody else was hurt.",
            ),
            ("lou", "It was paint and empty barrels, the owner told our reporter. The roof has fallen in."),
            ("measure.it", "Air sensors south of the canal read 140 micrograms at 2:00 and 35 at 6:00."),
        ),
    ),
    (
        ("How high is the river Tessel, and is it still rising?", "Which bridges over the Tessel are closed?"),
        (
            (
                "gauge_tessel",
                "River gauge at Tessel lock: 5.42 m at 17:00, up 18 cm in three hours, peak expected at midnight.",
            ),
            ("helena", "Water stands on the lower quay, the cafe has carried its chairs upstairs."),
            (
                "roads",
                "The Weir Bridge and the footbridge at Holm are closed. The Station Bridge stays open to buses only.",
            ),
            ("civil.aid", "Sandbags are handed out at the sports hall until 22:00, four for each household."),
            ("old_oak", "In 2013 it reached 5.90 m here, and the market hall stayed dry, just."),
        ),
    ),
    (
        ("Who won the final between Corvane and Brack?", "How did the winning goal come about?"),
        (
            ("corvane_fc", "Full time. Corvane 2, Brack 1, and the cup comes home for the first time since 1998."),
            ("terrace", "Ilse Maron in minute 88, from a corner that should have been a goal kick. Who cares!"),
            ("brackfan", "We hit the post twice and lose to a deflected shot. See you next year."),
            ("ref_watch", "The corner before the second goal was wrong: the last touch was Maron's own."),
            ("stats_hour", "Corvane 9 shots, 4 on target; Brack 17 shots, 6 on target. 21,300 in the ground."),
        ),
    ),
    (
        ("Why is there no water in the Hill district?", "How can people get drinking water now?"),
        (
            (
                "waterworks",
                "A main of 60 cm burst under Beech Street at 5:20. The Hill district has no water until about 20:00.",
            ),
            ("mo_beech", "Beech Street looks like a brook, two cars are in a hole up to the mirrors."),
            ("council", "Water tankers stand at the school and at Hill Square. Bring clean bottles, ten litres each."),
            ("clinic", "The clinic on the hill has its own tank and works as usual, only the laundry is closed."),
            ("jan.p", "Boil the water for three minutes when it comes back, says the waterworks, until Friday."),
        ),
    ),
    (
        ("What changes with the new night bus timetable?", "What do people dislike about the night buses?"),
        (
            ("bus_office", "From 1 March night buses N1 to N5 leave every 40 minutes instead of 30, Fridays every 20."),
            (
                "lena",
                "So after the late shift I wait 40 minutes at the hospital stop, in the dark. Thanks for nothing.",
            ),
            (
                "riders",
                "N3 no longer stops at the hospital; the next stop is 900 metres away. 1,200 people signed against it.",
            ),
            ("bus_office", "Night tickets stay at 2.80. A group ticket for up to five costs 9.00 and is new."),
            ("tomas", "At least Friday is better now, every 20 minutes until five in the morning."),
        ),
    ),
    (
        ("Is the power back in Eastgate?", "What caused the power cut in Eastgate?"),
        (
            ("grid_east", "Power is back for 8,400 of 9,100 homes in Eastgate. The rest follow before 23:30."),
            ("sam", "Still dark on Fuller Street and in the towers behind it, candles in every window."),
            ("grid_east", "An excavator cut two cables of 10 kV at the site of the new school at 18:52."),
            ("bakery_nine", "All our dough for tomorrow is warm and lost. Bread from 9:00, sorry."),
            ("fuller.st", "The lift in number 14 was stuck for an hour with one person inside, she is fine."),
        ),
    ),
    (
        ("What did the council decide about the market hall?", "What will the market hall cost?"),
        (
            ("council", "The council voted 23 to 18 to renovate the market hall instead of pulling it down."),
            (
                "press_box",
                "The work costs 14.6 million, of which the state pays 5 million. It starts in May and takes two years.",
            ),
            ("stall_12", "We move into tents on Mill Square meanwhile, half the rent, no heating."),
            ("opposition", "In 2019 they told us 8 million. Now it is 14.6. What will it be in two years?"),
            ("architects", "The glass roof of 1911 stays, and a tram stop comes to the north door."),
        ),
    ),
    (
        ("Which beaches are closed and why?", "When will the beaches open again?"),
        (
            (
                "coastguard",
                "Beaches North and Shell Bay are closed for swimming: lion's mane jellyfish, some hundreds.",
            ),
            ("surf_ida", "Got stung at Shell Bay, it burns like nettles for an hour. Rinse with sea water, not fresh."),
            ("health", "14 people were treated at the first-aid post yesterday, none had to stay in hospital."),
            (
                "coastguard",
                "With the wind turning west on Thursday the closed beaches may open again on Friday at 9:00.",
            ),
            ("kiosk", "South Beach is open and has none so far, and half the town is on it."),
        ),
    ),
    (
        ("What is going on at the airport?", "How many flights were cancelled?"),
        (
            (
                "air_info",
                "Fog: 31 of 74 departures are cancelled, sight is 150 metres, the next forecast comes at 11:00.",
            ),
            ("stranded", "Gate 7, four hours, one coffee machine, no announcement. At least the children sleep."),
            ("rail_link", "Two extra trains run to the capital at 10:12 and 12:12, flight tickets are accepted."),
            ("air_info", "Passengers of cancelled flights can rebook for free at desks 20 to 28 or online."),
            ("meteo", "Sun will break through between noon and two o'clock, says the weather office at the airport."),
        ),
    ),
)
QUOTE = ("Quote all posts word for word, one after the other.", "Repeat exactly what @{first} and @{last} wrote.")


def rag_prompts(tokenizer: Renders) -> list[list[int]]:
    """20 questions to be answered from posts."""
    return [_composed(tokenizer, question, posts) for questions, posts in STORIES for question in questions]


def quoting_prompts(tokenizer: Renders) -> list[list[int]]:
    """20 requests whose answers are posts."""
    return [
        _composed(tokenizer, request.format(first=posts[0][0], last=posts[4][0]), posts)
        for _, posts in STORIES
        for request in QUOTE
    ]


def _composed(tokenizer: Renders, question: str, posts: Sequence[tuple[str, str]]) -> list[int]:
    matches = [_match(number, handle, text) for number, (handle, text) in enumerate(posts)]
    prompt = compose(
        [Message("user", question)],
        matches,
        tokenizer=tokenizer,
        budget_tokens=1500,
        max_posts=5,
        nonce="k3v9x2m8",
        now_ms=NOW_MS,
    )
    assert len(prompt.used) == len(posts), "every post fits"
    return list(prompt.prompt_ids)


def _match(number: int, handle: str, text: str) -> Match:
    at_ms = NOW_MS - 60_000 * (3 + 7 * number)
    return Match(
        post_id=f"bench:{number}",
        number=0,
        text=text,
        source="bench",
        author_id=handle,
        author_handle=handle,
        author_name="",
        url="",
        lang="en",
        created_ms=at_ms,
        sort_ms=at_ms,
        version_us=at_ms * 1000,
        score=1.0 - number / 10,
    )
