"""Rules for sexual content that involves minors. A report of a crime excuses words that a report must use ("naked
pictures of children were found"), never text that is itself such content, asks for it or offers it."""

from safety.rule import Rule

PERSON = r"(?:girls?|boys?|kids?|child(?:ren)?|teens?|students?|daughters?|sons?|pupils?)"
YOUNG = (
    rf"(?:under-? ?aged?|pre-?teen|little|young|school ?|teenage|small)\s?{PERSON}|child(?:ren)?|kids?|"
    r"pre-?teens?|toddlers?|infants?|minors|a minor|lolis?|shotas?|schoolgirls?|schoolboys?"
)
MINOR = rf"(?:{YOUNG}|(?:[1-9]|1[0-7])[- ]?(?:years?|yrs?)[- ]old\w*|(?:[1-9]|1[0-7]) ?yo\b)"
# "sexy 10 year old" may go on with "car".
NAMED_MINOR = rf"(?:{YOUNG}|(?:[1-9]|1[0-7])[- ]?(?:(?:years?|yrs?)[- ]old|yo) {PERSON})"
LEWD = (
    r"(?:nudes?|naked|sexual(?:i[sz]ed|ly explicit)?|erotic|porn(?:ographic|ography)?|sexy|lewd|smut|"
    r"hentai|explicit sexual)"
)
KIND = (
    r"(?:(?:pictures?|pics?|photos?|images?|videos?|content|stor(?:y|ies)|fiction|"
    r"scenes?|material|drawings?|art|acts?) )?"
)
ABOUT = r"(?:(?:of|about|with|involving|featuring|between|depicting) )(?:a |an |some |the |two )?(?:\w+ )?"
LEWD_ABOUT = rf"{LEWD} (?:\w+ )?{KIND}{ABOUT}{MINOR}"
ABUSE = r"(?:(?:child|kiddie|pre-?teen|under-? ?age|loli|shota) (?:porn\w*|nudes?|sex videos?)\b|csam\b)"
SEX = rf"sex with (?:a |an |the |my |some )?(?:\w+ )?{MINOR}"
# Where an order begins, and not the account of what someone did.
ORDERED = (
    r"(?:(?:^|[.!?:;,\"])\s*|\b(?:please|can you|could you|will you|want you to|need you to|asked you to|now|just|"
    r"let's|go on and) )"
)
SOME = r"(?:(?:to|me|us|him|your|my|the|some|more|a|an|any|of|those|these|have|see|watch|get|buy|for|hot) ){0,4}"
CRIME = r"(?! (?:law|charge|case|arrest|suspect|victim|ring|probe|trial|convict|investig|offen|possess|image))"

# What nothing excuses.
EXPLICIT = (
    # orders
    rf"{ORDERED}(?:write|draw|generate|describe|imagine|role-?play|continue|compose|send|share|trade|sell|buy|download|"
    rf"show|make|create|give|post|see|look at|check out|enjoy|here(?:'s| is| are)) {SOME}"
    rf"(?:{LEWD_ABOUT}|{ABUSE}{CRIME})|"
    # made-up sexual content, which no crime leaves behind
    rf"\b(?:erotic|porn\w*|smut|lewd|hentai|sexy|(?:sexually )?explicit(?: sexual)?) (?:\w+ )?"
    rf"(?:stor(?:y|ies)|fiction|role-?plays?) {ABOUT}{MINOR}|"
    # offers
    rf"\b(?:dm me for|anyone (?:got|have|has|selling)|who has|who's got|(?:i'?m|i am|we are|we're) "
    rf"(?:selling|trading|sharing)) {SOME}(?:{LEWD_ABOUT}|{ABUSE}{CRIME})|"
    # wishes
    rf"\bi(?:'d| would|'m| am| really)? (?!not |never )(?:\w+ )?(?:want|wanna|like|love|need|looking|trying) {SOME}"
    rf"(?:{SEX}|{ABUSE}{CRIME})|"
    rf"\b(?:where|how) (?:can|could|do|to) (?:i |we |you )?(?:find|get|watch|see|download|buy|make|have|access|share) "
    rf"{SOME}(?:{SEX}|{ABUSE}{CRIME})"
)
PRAISE = (
    rf"{MINOR}(?: {PERSON})? (?:is|are|looks?) (?:so |very |really )?(?:sexy|fuckable)|"
    rf"\b(?:sexy|fuckable|horny) {NAMED_MINOR}"
)
EXPLICIT_ES_DE = (
    r"\brelatos? (?:erótic|pornográfic)[oa]s? (?:\w+ ){0,2}?(?:de|con|sobre|entre) (?:\w+ )?"
    r"(?:niñ[oa]s?|menor(?:es)?)\b|"
    r"(?<!\bno )(?<!\bnunca )\b(?:quiero|busco|vendo|comparto|escribe|dame|envíame|mándame) (?:[^.!?\n]{0,20} )?"
    r"(?:porno(?:grafía)? infantil|(?:porno|sexo|fotos? desnud[oa]s?) (?:de|con) (?:\w+ )?"
    r"(?:niñ[oa]s?|menor(?:es)?)\b)|"
    r"\b(?:erotische|pornografische|pornographische) geschichten? (?:\w+ ){0,2}?(?:von|mit|über) (?:\w+ )?"
    r"(?:kindern?|minderjährigen?|kleinen (?:mädchen|jungen))\b|"
    r"\b(?:ich (?:suche|verkaufe|tausche|will)|schick mir|gib mir|zeig mir|schreib(?:e)?(?: mir)?) (?:[^.!?\n]{0,20} )?"
    r"(?:kinderporno\w*|sex mit (?:\w+ )?(?:kindern?|minderjährigen?))"
)

TRIGGERS = "girl|boy|kid|child|teen|toddler|infant|minor|loli|shota|old| yo|csam|under"
TRIGGERS_ES_DE = "niñ|menor|infantil|kind|minderj|mädchen|jungen"

RULES = (
    Rule("minors", "explicit", TRIGGERS, EXPLICIT),
    Rule("minors", "explicit_es_de", TRIGGERS_ES_DE, EXPLICIT_ES_DE),
    Rule("minors", "praise", TRIGGERS, PRAISE, ("negated",)),
    Rule(
        "minors",
        "en",
        TRIGGERS,
        (
            rf"\b{LEWD_ABOUT}|\b(?:want|wanna|like|love|trying|how|where|"
            rf"can i|let me|looking) (?:[^.!?\n]{{0,30}} )?(?:{SEX}|{ABUSE})|"
            rf"\b(?:send|share|trade|sell|selling|buy|download|trading|got|have|"
            rf"dm me for) (?:[^.!?\n]{{0,20}} )?(?:{ABUSE})|"
            rf"\b(?:seduce|molest|groom|undress) (?:a |an |the |my |some |little )?(?:\w+ )?{MINOR}"
        ),
        ("reported", "countered", "negated"),
    ),
    Rule(
        "minors",
        "es_de",
        TRIGGERS_ES_DE,
        (
            r"\b(?:porno|sexo|desnud[oa]s?|fotos? (?:sexual(?:es)?|desnud[oa]s?)|relatos? erótic[oa]s?|"
            r"imágenes sexuales) (?:\w+ ){0,2}?(?:de|con|sobre|entre) (?:\w+ )?(?:niñ[oa]s?|menor(?:es)?)\b|"
            r"\b(?:quiero|busco|vendo|descargar|comparto|dónde) (?:[^.!?\n]{0,20} )?(?:porno(?:grafía)? infantil)|"
            r"\b(?:nackt(?:e|en|bilder|fotos)?|sex|sexuelle\w*|erotische\w*|porno\w*) (?:\w+ ){0,2}?(?:von|mit|"
            r"über) (?:\w+ )?(?:kindern?|minderjährigen?|kleinen (?:mädchen|jungen))\b|\b(?:suche|verkaufe|"
            r"tausche|will|wo) (?:[^.!?\n]{0,20} )?kinderporno\w*"
        ),
        ("reported", "countered", "negated"),
    ),
)
