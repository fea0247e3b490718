"""Rules for weapons and the like: asking how to make them, and telling it."""

from safety.rule import Rule
from safety.violence import I_ASK

WEAPON = (
    r"(?:(?<!bath )(?<!seed )(?<!photo)(?<!photo )(?<!glitter )(?<!chocolate )(?<!cocoa )(?<!smoke )(?<!se"
    r"x )(?:pipe |nail |dirty |letter |"
    r"fertili[sz]er |nuclear |car |petrol |suicide |time )?bombs?\b(?! (?:shelter|disposal|threat|squad|"
    r"detector|cyclone|proof|suit|pop|ass|cookie|cake|"
    r"sandwich|dive|chart|calorimeter))|explosives?(?: devices?| vest)?\b|\bieds?\b|"
    r"molotov(?: cocktails?)?|(?:hand )?grenades?|nitroglycerin\w*|"
    r"napalm|thermite|\btnt\b|\bc-?4\b|\btatp\b|nerve (?:gas|agent)s?|\bsarin\b|\bvx gas|\bricin\b|"
    r"anthrax|mustard gas|chlorine gas|phosgene|"
    r"(?:chemical|biological|radiological|bio) ?weapons?|bioweapons?|(?:deadly |lethal |"
    r"undetectable )poisons?|cyanide|(?:crystal )?meth\b|"
    r"methamphetamines?|fentanyl|heroin|crack cocaine|\bghb\b|ghost guns?|silencers?|untraceable (?:gun|"
    r"firearm|weapon)s?|ransomware|"
    r"malware|keyloggers?|computer (?:virus|worm)e?s?|botnets?|spyware)"
)
NOT_DEFENCE = (
    r"(?:(?!detect|prevent|remov|protect|against|avoid|stop|defend|defus|report|safe from|"
    r"clean)[^.!?\n]){0,40}?"
)
MAKE = (
    r"\b(?:mak(?:e|ing)|build(?:ing)?|construct(?:ing)?|creat(?:e|ing)|assembl(?:e|ing)|cook(?:ing)?|"
    r"synthesi[sz](?:e|ing)|manufactur(?:e|ing)|produc(?:e|ing)|3d[- ]print(?:ing)?|writ(?:e|ing)|"
    r"develop(?:ing)?|brew(?:ing)?|cultivat(?:e|ing)|distribut(?:e|ing)|deploy(?:ing)?|spread(?:ing)?)\b"
)

RULES = (
    Rule(
        "weapons",
        "en_how",
        "bomb|explosive|ied|molotov|grenade|nitrogly|napalm|thermite|tnt|c4|c-4|tatp|nerve|sarin|vx|"
        "ricin|anthrax|gas|weapon|poison|cyanide|meth|fentanyl|heroin|cocaine|ghb|gun|silencer|"
        "ransomware|malware|keylog|virus|worm|botnet|spyware",
        (
            rf"(?:{I_ASK}\b{NOT_DEFENCE}{MAKE}|\b(?:recipe|tutorial|blueprints?|instructions?|manual|guide) (?:for|"
            rf"on|of|to)\b{NOT_DEFENCE}|\bwrite (?:me )?(?:a |an |some )?(?:\w+ )?(?:tutorial|guide|manual|script|"
            rf"program|code)\b{NOT_DEFENCE}) (?:[\w-]+ ){{0,4}}?{WEAPON}"
        ),
        ("quoted", "reported", "fiction", "negated"),
    ),
    Rule(
        "weapons",
        "es",
        "bomba|explosiv|molotov|napalm|veneno|sarín|ricina|armas|metanfetamina|arma ",
        (
            r"\b(?:c[oó]mo (?:puedo |se puede |podría )?|instrucciones para |quiero |receta para |enséñame a |"
            r"ayúdame a |dime cómo )(?:hacer|fabricar|construir|fabrico|hago|construyo|preparar|cocinar|"
            r"sintetizar) (?:\w+ ){0,3}?(?:bombas?\b(?! de (?:baño|agua|calor|chocolate|semillas))|explosivos?|"
            r"cóctel(?:es)? molotov|napalm|veneno|gas sarín|ricina|armas? (?:químicas?|biológicas?)|"
            r"metanfetaminas?)"
        ),
        ("quoted", "reported", "fiction", "negated"),
    ),
    Rule(
        "weapons",
        "de",
        "bombe|sprengst|sprengs|molotow|napalm|gift|sarin|rizin|waffe|meth|crystal",
        (
            r"\b(?:wie (?:kann ich|kann man|baue ich|baut man|mache ich|macht man|bastle ich|stelle ich|"
            r"stellt man)|anleitung (?:zum|für|zur)|ich (?:will|möchte)|hilf mir|zeig mir,? wie man|"
            r"erkläre?,? wie man) (?:\w+ ){0,4}?(?:\w*(?<!bade)bomben?\b|\w*sprengst\w+|sprengsatz|molotow\w*|"
            r"napalm|giftgas|sarin|rizin|(?:chemie|bio)waffen?|crystal meth|methamphetamin)(?! (?:entschärfen|"
            r"erkennen|melden))"
        ),
        ("quoted", "reported", "fiction", "negated"),
    ),
    Rule(
        "recipe",
        "en",
        "bomb|explosive|molotov|grenade|napalm|thermite|nerve|sarin|ricin|gas|weapon|meth|tatp|ghost gun|"
        "ransomware|malware",
        (
            rf"\b(?:to|can|steps? to|how to) {MAKE} (?:\w+ ){{0,3}}?{WEAPON}\b[^.!?\n]{{0,40}}(?:you(?:'ll| will|"
            rf" would)? need|\bmix\b|\bcombine\b|\badd\b|\bfirst\b|\bstart by\b|\bgather\b|\bingredients\b|"
            rf"\bpack\b|\bfill\b|\bfollow these)"
        ),
        ("quoted", "reported", "fiction", "negated"),
    ),
)
