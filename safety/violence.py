"""Rules for threats, and for asking how to hurt people."""

from safety.rule import Rule

KILL = (
    r"(?:kill|murder|shoot|stab|slaughter|behead|bomb|strangle|butcher|execute|rape|burn|blow up|shoot up|"
    r"massacre|hurt)"
)
OF_YOU = (
    r"(?:you(?:r family| all)?\b(?! (?:an? |some |the |my )?(?:e-?mail|text|message|dm|pic|line|note|"
    r"quote|question|look|question|with))|ya'?ll|y'all|"
    r"your (?:wife|husband|kids?|children|mother|mom|father|dad|family|friends|parents|dog|baby)|"
    r"all of (?:you|them)|them all|"
    r"(?:every(?:one|body)|everyone) (?:there|here|in|at|who)|every (?:one|last one|single one) of (?:you|"
    r"them)|"
    r"(?:the|your|this|that|my) (?:school|mosque|church|synagogue|temple|office|hospital|stadium|"
    r"police station|city hall|parliament))"
)
I_WILL = (
    r"(?:\bi|\bwe)(?:'?ll|'?m (?:going to|gonna|coming to)|'?re (?:going to|gonna)| will| am going to|"
    r" are going to|(?: am| are)? gonna| shall)"
)

PERSON = (
    r"(?:someone|somebody|people|a person|persons|(?:a|an|the|this|that|another) (?:man|woman|guy|girl|"
    r"boy|kid|child|baby|cop|human|human being|"
    r"police officer|stranger|student)|my (?:\w+ )?(?:wife|husband|ex|boss|neighbou?rs?|girlfriend|"
    r"boyfriend|mother|father|mom|dad|mum|parents|"
    r"brother|sister|teacher|co-?workers?|colleagues?|classmates?|friend|roommate|family|son|daughter|"
    r"child|kids?|baby|partner|landlord)|"
    r"(?:\w+ ){0,3}(?:president|prime minister|senator|governor|mayor|pope|king|queen|politicians?|judge|"
    r"chancellor|ceo)|"
    r"(?:a|the|my|our|their) (?:\w+ )?(?:school|mosque|church|synagogue|hospital|crowd|concert|mall|"
    r"stadium|police station|embassy|parliament|"
    r"white house|capitol|subway|airport)|cops|police officers|civilians|schoolchildren|(?:him|her|"
    r"them)\b(?= ?(?:[.?!]|$|and|without|with|so|in his|in her)))"
)
I_ASK = (
    r"(?:\bhow (?:to|do i|do we|can i|can we|could i|would i|should i|might i|do you|can you|can one|"
    r"does one)|\bhelp me(?: to)?|\bi (?:want|plan|need|"
    r"intend|would like|am going|am planning) to|\bi'?m (?:going|planning) to|\bi wanna|"
    r"\bways? (?:for me )?to|\bteach me (?:how )?to|\bmethods? to|"
    r"\binstructions? (?:to|for|on how to)|\bplan to|\bsteps to|\bguide (?:to|on how to)|\btell me how to|"
    r"\bshow me how to|\bexplain how to)"
)
RULES = (
    Rule(
        "threat",
        "en",
        "kill|murder|shoot|stab|slaughter|behead|bomb|strangle|butcher|execute|rape|burn|blow up|massacre|hurt",
        rf"{I_WILL} (?:\w+ ){{0,2}}?{KILL} (?:the hell out of |every one of |all )?{OF_YOU}",
        ("quoted", "reported", "fiction", "joked", "negated"),
    ),
    Rule(
        "threat",
        "en_die",
        "going to die|gonna die|will die|are dead|'re dead",
        (
            r"\byou(?:'re| are|'ll| will| all)? (?:all )?(?:going to |gonna )?(?:die|be dead|dead) (?:tonight|"
            r"tomorrow|today|soon)\b[^?\n]{0,30}(?:bitch|traitor|scum|pig|!|watch your back|coming for you)"
        ),
        ("quoted", "reported", "fiction", "joked"),
    ),
    Rule(
        "threat",
        "es",
        "voy|vamos|mataré|mataremos",
        (
            r"\b(?:te|os|los|las|le|les) (?:voy|vamos) a (?:matar|degollar|apuñalar|asesinar|quemar|violar|"
            r"pegar un tiro|rajar)\b(?! a (?:besos|cosquillas|preguntas))|\b(?:voy|vamos) a (?:matar|asesinar|"
            r"apuñalar|degollar|violar)(?:te|os|los|las)\b|\bte matar(?:é|emos)\b"
        ),
        ("quoted", "reported", "fiction", "joked", "negated"),
    ),
    Rule(
        "threat",
        "de",
        "dich|euch|deine|eure",
        (
            r"\b(?:ich|wir) (?:werden?|will|wollen) (?:dich|euch|deine \w+|eure \w+) (?:alle )?(?:umbringen|töten|"
            r"abstechen|erschießen|abschlachten|ermorden|verbrennen|vergewaltigen)|\bich (?:bring|bringe) (?:dich|"
            r"euch) (?:alle )?um\b|\bich (?:töte|erschieße|ersteche|ermorde) (?:dich|euch)\b|\bich (?:stech|"
            r"steche|knall|knalle) (?:dich|euch) (?:alle )?ab\b"
        ),
        ("quoted", "reported", "fiction", "joked"),
    ),
    Rule(
        "violence",
        "en",
        "kill|murder|shoot|stab|slaughter|behead|bomb|strangle|assassinate|poison|kidnap|torture|rape|"
        "blow up|massacre|hurt|hitman|hit man|run over",
        (
            rf"{I_ASK} (?:\w+ ){{0,3}}?(?:kill|murder|assassinate|bomb(?: on)?|poison|stab|shoot(?: up)?|strangle|"
            rf"kidnap|behead|torture|rape|blow up|massacre|slaughter|run over|hire an? (?:hit ?man|assassin) (?:to|"
            rf"for)) (?:\w+ ){{0,3}}?{PERSON}"
        ),
        ("fiction", "joked", "negated"),
    ),
    Rule(
        "violence",
        "es",
        "matar|asesinar|apuñalar|envenenar|secuestrar|violar|disparar",
        (
            r"\b(?:c[oó]mo (?:puedo |podría )?|quiero |voy a |ayúdame a |la mejor forma de |manera de )(?:matar|"
            r"asesinar|apuñalar|envenenar|secuestrar|violar|disparar)(?:l[oe]s?|las?)? (?:a )?(?:una persona|"
            r"alguien|gente|mi (?:\w+ )?(?:esposa|marido|mujer|jefe|vecin[oa]|novi[oa]|madre|padre|herman[oa]|"
            r"profesor[a]?|ex)|(?:la|el) (?:presidente|presidenta|rey|ministro|alcalde)|policías)"
        ),
        ("fiction", "joked", "negated"),
    ),
    Rule(
        "violence",
        "de",
        "umbringen|töten|ermorden|erstechen|vergiften|entführen|erschießen|vergewaltigen",
        (
            r"\b(?:wie (?:kann ich|könnte ich|soll ich)|ich (?:will|möchte|werde)|hilf mir,?|"
            r"wie man) (?:am besten )?(?:jemanden|menschen|leute|eine person|meine[nr]? (?:frau|mann|chefin|chef|"
            r"nachbarn?|freundin|freund|mutter|vater|bruder|schwester|lehrerin|lehrer|ex)|den (?:präsidenten|"
            r"kanzler|bürgermeister|könig)|die (?:kanzlerin|präsidentin)) (?:\w+ ){0,3}?(?:zu )?(?:umbringen|"
            r"töten|ermorden|erstechen|vergiften|entführen|erschießen|vergewaltigen)"
        ),
        ("fiction", "joked", "negated"),
    ),
)
