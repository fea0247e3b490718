"""What a content rule is, and the contexts in which its match means nothing."""

from dataclasses import dataclass
from functools import cached_property

import regex


@dataclass(frozen=True)
class Rule:
    """A pattern on lower-case text, every gap bounded, so that a search is linear. It is tried only when one of
    `triggers` ("one|another") is in the text; `excuses` names the contexts (EXCUSES, "negated", "quoted") in which a
    match means nothing."""

    label: str
    name: str
    triggers: str
    pattern: str
    excuses: tuple[str, ...] = ()

    def is_worth_trying(self, lower: str) -> bool:
        return any(trigger in lower for trigger in self._triggers)

    @cached_property
    def _triggers(self) -> list[str]:
        return self.triggers.split("|")

    @cached_property
    def compiled(self) -> regex.Pattern[str]:
        return regex.compile(self.pattern)


REPORTED = (
    r"said|says|told (?:police|reporters|the court|officers)|report(?:ed|edly|s|ing)|according to|"
    r"arrest(?:ed|s)?|charged|charges|"
    r"convict(?:ed|ion)|sentenced|police|court|judge|jury|prosecutors?|suspects?|alleged(?:ly)?|accused|"
    r"investigat\w+|victims?|trial|"
    r"journalists?|witness(?:es)?|threaten(?:ed|ing)|threats?|headline|quoted?|"
    r"dijo|dijeron|según|policía|detenid[oa]s?|juez|fiscal\w*|acusad[oa]s?|condenad[oa]s?|juicio|"
    r"amenaz\w+|víctimas?|"
    r"laut|polizei|gericht|angeklagt\w*|verhaftet|festgenommen|berichte\w*|staatsanwalt\w*|verurteilt|"
    r"drohte|drohung\w*|sagte"
)
COUNTERED = (
    r"wrong|unacceptable|racists?|racism|sexists?|sexism|bigot\w*|hate ?speech|hateful|shame on|"
    r"condemn\w*|stop saying|(?:nobody|no one|"
    r"no-one) (?:should|deserves)|(?:do not|don't|never|not) (?:ever )?(?:say|tell|think|believe|support|"
    r"agree)\w*|disagree|myth|"
    r"stereotypes?|prejudice\w*|discriminat\w+|antisemit\w+|islamophob\w+|homophob\w+|transphob\w+|"
    r"misogyn\w+|untrue|false|nonsense|"
    r"falso|mentira|racistas?|racismo|machistas?|machismo|odio es|mito|prejuicios?|estereotip\w+|"
    r"falsch|lüge|rassis\w+|sexis\w+|vorurteil\w*|klischees?|hetze|stimmt nicht"
)
FICTION = (
    r"(?:video ?)?games?|gaming|gameplay|movies?|films?|novels?|fiction(?:al)?|songs?|lyrics|characters?|"
    r"npcs?|boss fight|minecraft|fortnite|"
    r"call of duty|cod|gta|grand theft auto|counter[- ]?strike|skyrim|pubg|among us|dark souls|elden ring|"
    r"zelda|pokemon|pokémon|"
    r"world of warcraft|warband|hitman|overwatch|sims|roblox|dungeons? (?:and|&) dragons|d&d|chess|anime|"
    r"manga|tv show|tv series|"
    r"juego|videojuego|película|novela|canción|spiel|videospiel|film|roman|lied"
)
JOKED = (
    r"lol|lmao|rofl|haha\w*|jaja\w*|jk|just kidding|joking|xd|\U0001f602|\U0001f923|\U0001f606|tickle|"
    r"kindness|laughter|hugs"
)
EXCUSES = {
    name: regex.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])")
    for name, words in {"reported": REPORTED, "countered": COUNTERED, "fiction": FICTION, "joked": JOKED}.items()
}
NEGATED = regex.compile(
    r"(?:do not|don'?t|never|not|won'?t|wouldn'?t|can'?t|cannot|without|against|nobody|no one|no-one|stop|"
    r"prevent(?:ing)?|nunca|no|nadie|"
    r"nicht|nie|niemals|kein\w*|niemand)\s(?:[\w']+\s){0,3}$"
)
