"""Rules for telling someone to hurt themselves, and for asking how."""

from safety.rule import Rule

RULES = (
    Rule(
        "self_harm",
        "en",
        "yourself|yourselves|urself|kys|your life|your own life|suicide|your wrists|bleach|without you|if you ",
        (
            r"(?<!\bto )(?<!tryna )(?<!wanna )\bkys\b|(?:\b(?:go|just|please|should|ought to|need to|must|better|"
            r"to|why don'?t you)|^|[.!?,:]) ?(?:just |go |and |all ){0,3}(?:kill|hang|shoot|drown|"
            r"off) (?:yoursel(?:f|ves)|urself)\b|\b(?:you should|you deserve to|please|just|go|do (?:everyone|"
            r"us all|the world) a favou?r and) (?:just |go |and ){0,4}(?:end your (?:own )?life|commit suicide|"
            r"slit your wrists|drink bleach)|\b(?:world|everyone|we) (?:would|'d|will) (?:all )?be (?:better|"
            r"happier)(?: off)? (?:without you|if you (?:were dead|died|killed yourself))"
        ),
        ("quoted", "reported", "countered", "fiction", "negated"),
    ),
    Rule(
        "self_harm",
        "en_how",
        "myself|my life|my own life|suicide|overdose",
        (
            r"\b(?:how (?:to|do i|can i|could i|should i)|(?:best|easiest|quickest|fastest|painless|"
            r"surest) ways? (?:to|for me to|of)|painless(?:ly)?|ways? to|methods? (?:to|of|"
            r"for)) (?:\w+ ){0,2}?(?:(?:kill|hang|cut|drown|starve)(?:ing)? myself|(?:commit|die by) suicide|"
            r"suicide methods?|end(?:ing)? my (?:own )?life|overdose on)\b"
        ),
        ("negated",),
    ),
    Rule(
        "self_harm",
        "es",
        "mátate|matate|suicíd|suicid|ahórcate|matarte|matarme|vida",
        (
            r"\b(?:mátate|suicídate|suicidate|ahórcate|vete a matarte)\b|\bdeberías (?:matarte|suicidarte|"
            r"ahorcarte|morirte)|\bc[oó]mo (?:puedo )?(?:suicidarme|matarme|quitarme la vida)"
        ),
        ("quoted", "reported", "countered", "negated"),
    ),
    Rule(
        "self_harm",
        "de",
        "bring dich|häng dich|töte dich|umbringen|selbstmord|bringe ich mich|geh sterben|erhängen",
        (
            r"\bbring dich (?:doch |einfach |endlich ){0,3}um\b|\b(?:er)?häng dich(?: doch)?(?: auf)?\b(?! an)|"
            r"\btöte dich(?: selbst)?\b|\bdu solltest dich (?:umbringen|töten|erhängen)|\bgeh(?: doch)? sterben\b|"
            r"\bwie (?:kann ich mich|bringe ich mich) (?:am besten |selbst |schmerzlos ){0,3}um(?:bringen)?\b|"
            r"\bwie begehe ich selbstmord"
        ),
        ("quoted", "reported", "countered"),
    ),
)
