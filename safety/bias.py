"""The layer for generalisations about groups of people: a group, all of it or by its nature, and something bad.

Exempt: what is denied, quoted, asked about or spoken against, and statements about some of a group.
"""

import regex

from safety import groups
from safety.layer import Flag
from safety.normalise import Normalised
from safety.rule import EXCUSES
from safety.verdict import Action, Finding, Surface

# A question may ask about a prejudice, and a post that voices one is evidence of what is said: both keep the finding
# and pass, because the answer made from them is screened again. In our own words none leaves.
ACTIONS: dict[Surface, Action] = {"question": Action.ALLOW, "post": Action.ALLOW, "answer": Action.REWRITE}
INSTEAD = "[a generalisation about a group was left out]"

ENGLISH_TRAITS = (
    r"(?:lazy|stupid|dumb|idiots?|morons?|criminals?|thieves|terrorists?|rapists?|murderers|liars|cheats?|"
    r"cheap|greedy|stingy|dirty|filthy|"
    r"smelly|violent|aggressive|dangerous|savages?|barbaric|barbarians?|uncivili[sz]ed|backward|primitive|"
    r"inferior|incompetent|useless|weak|"
    r"hysterical|irrational|too emotional|overly emotional|gold ?diggers|sluts|whores|perverts?|"
    r"pedophiles|paedophiles|predators|groomers|"
    r"mentally ill|sick|freaks|untrustworthy|dishonest|corrupt|evil|uneducated|illiterate|unintelligent|"
    r"less intelligent|drunks|"
    r"drug dealers|drug addicts|spongers|freeloaders|leeches|a burden|a threat|a danger|a drain on|"
    r"ungrateful|disloyal|traitors|sneaky|"
    r"manipulative|bad (?:at|drivers|with|parents|mothers)|terrible (?:at|drivers)|not (?:capable|smart|"
    r"intelligent|suited|fit|made) |unable to|incapable|"
    r"unfit|not to be trusted|not trustworthy|out to get|taking over|invading|destroying|ruining)"
)
ENGLISH_ACTS = (
    r"(?:(?:can't|cannot|can not|can never|don't know how to|are not able to) (?:be trusted|drive|think|"
    r"do math|do maths|lead|control themselves|"
    r"be faithful|assimilate|integrate|learn|code|handle)|(?:always |only |all |just ){0,4}(?:lie|steal|cheat|"
    r"rape|beat their|want our|take our|"
    r"come here to|live off|hate (?:us|america|the west|women)|belong in the kitchen|belong in the home|"
    r"should (?:stay|be) in the kitchen|"
    r"only (?:care about|want|think about) (?:money|sex|themselves)|control the (?:media|banks|world|"
    r"government)|run the (?:media|banks|world)))"
)
ALL_OF = (
    r"(?:all|every|most|the|these|those|typical|real|you know how|we all know|everyone knows|"
    r"it's a fact that|because|that|as|since|but|and|so|well,?)"
)
BY_NATURE = (
    r"(?:all|always|just|so|simply|naturally|inherently|genetically|by nature|basically|generally|usually|"
    r"mostly|typically|really|such|fundamentally|biologically|more likely to be|only|nothing but|"
    r"a bunch of|too|very|fucking|bloody|known to be|born)"
)
RULES = {
    "en": (
        rf"(?:^\s{{0,8}}|[.!?;:,\n(]\s{{0,8}}|\b{ALL_OF}\s)(?:{ALL_OF}\s)?(?P<group>{groups.ENGLISH})\s(?:(?:are|were|"
        rf"is)\s(?:{BY_NATURE}\s){{0,3}}{ENGLISH_TRAITS}|(?:{BY_NATURE}\s)?{ENGLISH_ACTS})"
    ),
    "en_nature": (
        rf"\b(?:it(?:'s| is) (?:in (?:the )?(?:nature|blood|dna|genes|culture) of )(?:all |the |"
        rf"most )?{groups.ENGLISH} to|{groups.ENGLISH} have it in their (?:blood|genes|nature|dna))"
    ),
    "es": (
        rf"(?:^\s{{0,8}}|[.!?;:,\n(¿¡]\s{{0,8}}|\b(?:todos|todas|que|porque|y|pero|como)\s)(?:todos |todas )?"
        rf"(?:los|las|esos|esas) (?P<group>{groups.SPANISH}) (?:siempre |solo |nunca )?(?:(?:son|eran)\s"
        rf"(?:(?:todos|todas|siempre|unos|unas|tan|muy|por naturaleza|generalmente|más|naturalmente|simplemente|"
        rf"gente)\s){{0,3}}(?:vag[oa]s|perezos[oa]s|tont[oa]s|estúpid[oa]s|criminales|delincuentes|ladrones|"
        rf"ladronas|terroristas|violador[ea]s|mentiros[oa]s|tacañ[oa]s|avar[oa]s|suci[oa]s|violent[oa]s|"
        rf"peligros[oa]s|salvajes|inferiores|incompetentes|inútiles|débiles|histéric[oa]s|irracionales|"
        rf"put[oa]s|pervertid[oa]s|enferm[oa]s|corrupt[oa]s|traidor[ea]s|ignorantes|mal[oa]s (?:conductor[ea]s|"
        rf"madres|padres)|una (?:carga|amenaza))|no (?:saben (?:conducir|pensar|trabajar)|son de fiar|"
        rf"quieren trabajar)|(?:roban|mienten|engañan|vienen a (?:robar|vivir)))"
    ),
    "de": (
        rf"(?:^\s{{0,8}}|[.!?;:,\n(]\s{{0,8}}|\b(?:alle|die|diese|dass|weil|und|aber)\s)(?:alle |die |"
        rf"diese )?(?P<group>{groups.GERMAN}) (?:(?:sind|waren)\s(?:(?:alle|immer|doch|halt|einfach|so|sehr|"
        rf"von natur aus|grundsätzlich|meistens|eben|nur|zu|nun mal)\s){{0,3}}(?:faul|dumm|blöd|kriminell|"
        rf"kriminelle|verbrecher|diebe|terroristen|vergewaltiger|lügner|geizig|gierig|dreckig|schmutzig|"
        rf"gewalttätig|gefährlich|primitiv|minderwertig|unfähig|inkompetent|schwach|hysterisch|irrational|"
        rf"schlampen|pervers|krank|korrupt|verräter|ungebildet|rückständig|schmarotzer|sozialschmarotzer|"
        rf"schlechte (?:autofahrer|mütter|eltern)|eine (?:last|gefahr|plage))|(?:können (?:nicht|"
        rf"kein\w*) (?:autofahren|auto fahren|denken|rechnen|einparken)|stehlen|klauen|lügen|"
        rf"betrügen)(?: immer| alle| nur)?\b|wollen (?:nur|nicht|alle nur) (?:arbeiten|unser geld|sozialhilfe))"
    ),
}
PATTERNS = {rule: regex.compile(pattern) for rule, pattern in RULES.items()}
SOME_OF = regex.compile(
    r"(?:\b(?:some|many|few|certain|not all|not every|these two|two|three|several|a few|if|whether|are|"
    r"why are|who (?:say|think|claim|believe)s?|"
    r"(?:says?|said|claims?|claimed|think|thinks|thought|believes?|believed|argues?|argued|assum\w+|"
    r"suggest\w*|the idea|the claim|the belief|the notion|"
    r"the stereotype|the myth|told me|tells)(?: that)?|algun[oa]s|no tod[oa]s|much[oa]s|es falso que|"
    r"dicen que|creen que|cree que|"
    r"nicht alle|manche|einige|viele|behaupt\w*,? dass|sagt,? dass|sagen,? dass|glaub\w*,? dass|"
    r"ob)\s(?:the |all |los |las |die |alle )?)$"
)
AROUND_CHARS = 160


class Bias:
    """Finds generalisations by rules in English, Spanish and German; in an answer the whole piece is replaced."""

    name = "bias"

    def examine(self, text: Normalised, surface: Surface) -> list[Flag]:
        for rule, pattern in PATTERNS.items():
            for match in pattern.finditer(text.lower):
                if not _is_exempt(text.lower, match):
                    return [self._flag(text, rule, match, surface)]
        return []

    def _flag(self, text: Normalised, rule: str, match: regex.Match[str], surface: Surface) -> Flag:
        action = ACTIONS[surface]
        if action is Action.REWRITE:  # the sentence, without the space around it
            start = len(text.raw) - len(text.raw.lstrip())
            end = len(text.raw.rstrip())
        else:
            start, end = text.raw_span(*match.span())
        return Flag(Finding(self.name, "generalisation", start, end, action, 1.0, rule), INSTEAD)


def _is_exempt(lower: str, match: regex.Match[str]) -> bool:
    group = match.start("group") if "group" in match.groupdict() else match.start()
    before = lower[max(0, group - AROUND_CHARS) : group]
    after = lower[match.end() : match.end() + AROUND_CHARS]
    if SOME_OF.search(before) or (before.count('"') % 2 == 1 and '"' in after):
        return True
    return EXCUSES["countered"].search(before + " \n " + after) is not None
