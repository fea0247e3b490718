"""Rules for sexual content that involves minors."""

from safety.rule import Rule

MINOR = (
    r"(?:(?:under-? ?aged?|pre-?teen|little|young|school ?|teenage|small)\s?(?:girls?|boys?|kids?|"
    r"children|child|teens?|students?)|child(?:ren)?|kids?|"
    r"pre-?teens?|toddlers?|infants?|minors|a minor|lolis?|shotas?|(?:[1-9]|1[0-7])[- ]?(?:years?|"
    r"yrs?)[- ]old\w*|(?:[1-9]|1[0-7]) ?yo\b|schoolgirls?|schoolboys?)"
)
LEWD = (
    r"(?:nudes?|naked|sexual(?:i[sz]ed|ly explicit)?|erotic|porn(?:ographic|ography)?|sexy|lewd|smut|"
    r"hentai|explicit sexual)"
)

RULES = (
    Rule(
        "minors",
        "en",
        "girl|boy|kid|child|teen|toddler|infant|minor|loli|shota|old| yo",
        (
            rf"\b{LEWD} (?:\w+ )?(?:(?:pictures?|pics?|photos?|images?|videos?|content|stor(?:y|ies)|fiction|"
            rf"scenes?|material|drawings?|art|acts?) )?(?:(?:of|about|with|involving|featuring|between|"
            rf"depicting) )(?:a |an |some |the |two )?(?:\w+ )?{MINOR}|\b(?:want|wanna|like|love|trying|how|where|"
            rf"can i|let me|looking) (?:[^.!?\n]{{0,30}} )?(?:sex with (?:a |an |the |my |some )?(?:\w+ )?{MINOR}|"
            rf"(?:child|kiddie|pre-?teen|under-? ?age|loli|shota) (?:porn\w*|nudes?|sex videos?)\b|csam\b)|"
            rf"\b(?:send|share|trade|sell|selling|buy|download|trading|got|have|"
            rf"dm me for) (?:[^.!?\n]{{0,20}} )?(?:(?:child|kiddie|pre-?teen|under-? ?age) (?:porn\w*|nudes?)|"
            rf"csam)\b|{MINOR} (?:is|are|look) (?:so |very |really )?(?:sexy|fuckable)|\b(?:seduce|molest|groom|"
            rf"undress) (?:a |an |the |my |some |little )?(?:\w+ )?{MINOR}"
        ),
        ("reported", "countered", "negated"),
    ),
    Rule(
        "minors",
        "es_de",
        "niñ|menor|infantil|kind|minderj|mädchen",
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
