"""Rules for hate: calls to harm a group, its dehumanisation, slurs used to attack."""

from safety import groups
from safety.rule import Rule

SLUR = (
    r"(?:n[i1]gg[e3]rs?|f[a4]gg?[o0]ts?|k[i1]kes?|ch[i1]nks?|sp[i1]cs?|wetbacks?|tr[a4]nn(?:y|ies)|"
    r"p[a4]kis?|gooks?|ragheads?|towelheads?|sand ?niggers?|dykes?)"
)
ATTACK = (
    r"(?:you(?:'re| are)?(?: a| an| all)?|fuck(?:ing|in)?|filthy|dirty|stupid|ugly|disgusting|these|those|"
    r"all|damn|goddamn|another|worthless|hate|kill|every|no)"
)
G, ES, DE = groups.ENGLISH, groups.SPANISH, groups.GERMAN
GS = rf"(?:{G}(?: like (?:you|them|this|that|him|her))?)"
DOOM = (
    r"(?:killed|exterminated|gassed|shot|hanged|lynched|burned|burnt|eradicated|eliminated|wiped out|"
    r"sterili[sz]ed|put down|beaten|raped|slaughtered)"
)
BEASTS = (
    r"(?:sub-?humans?|vermin|parasites|cockroaches|rats|animals|apes|monkeys|scum|filth|trash|garbage|"
    r"a plague|a disease|a cancer|a virus|an infestation|worthless|not human|no better than (?:rats|"
    r"animals|dogs|apes|cockroaches))"
)

RULES = (
    Rule(
        "hate",
        "en",
        "kill|exterminate|gas |lynch|hang|burn|shoot|slaughter|eradicate|wipe|eliminate|death to|should|"
        "must|deserve|need to|ought| are |hate|rid ",
        (
            rf"(?<!\b(?:to|they|who|he|she|did|would) )\b(?:kill|exterminate|gas|lynch|hang|burn|shoot|slaughter|"
            rf"eradicate|wipe out|eliminate|get rid of) (?:all |every |these |those |the |of ){{0,4}}(?:fucking |"
            rf"filthy |dirty |damn )?{G}\b(?! (?:in|at|with) (?:the )?(?:game|film|movie))|\b(?:i|we|you|they|someone|"
            rf"somebody) (?:really )?(?:want to|wanna|would love to|should(?: just)?|need to|must|have to|'?ll|"
            rf"are going to|'?re going to|am going to|'?m going to) (?:just |all )?(?:kill|exterminate|gas|lynch|"
            rf"hang|burn|shoot|slaughter|eradicate|wipe out|put an end to|strangle|stab) (?:all |every |these |"
            rf"those |the |of |you ){{0,4}}(?:fucking )?{G}\b|\bdeath to (?:all |the ){{0,4}}{G}\b|\b{GS} "
            rf"(?:should|must|need to|have to|ought to|deserve to)(?: all| just| really)? (?:(?:be|get) {DOOM}|die|rot|"
            rf"burn in hell|disappear|not exist)\b|\b{GS} (?:do not|don't) deserve to (?:live|exist|breathe)|"
            rf"\b{GS} have no right to (?:live|exist|be alive)|\b{GS} belong in (?:a zoo|a cage|cages|gas chambers|"
            rf"ovens)|\bbetter off (?:if (?:all |those |these )?{G} were {DOOM}|without (?:all |those |"
            rf"these ){{0,4}}(?:fucking )?{G}\b)|\b{GS} are (?:all |just |nothing but |fucking |basically |literally |"
            rf"absolute |total ){{0,4}}{BEASTS}\b|\bi (?:really |fucking |absolutely |just )?(?:hate|despise|loathe|"
            rf"detest|abhor) (?:all |every |the |these |those |fucking ){{0,4}}{GS}\b(?! (?:who|that|with|from|in|when|"
            rf"but|sometimes|lol|for|because|like)\b|'s)"
        ),
        ("quoted", "reported", "countered", "negated"),
    ),
    Rule(
        "hate",
        "slur",
        "igg|1gg|fag|f4g|kike|k1ke|chink|spic|wetback|trann|paki|gook|raghead|towelhead|dyke|ch1nk|sp1c",
        (
            rf"(?<![^\W_]){ATTACK} (?:\w+ ){{0,1}}?{SLUR}(?![^\W_])|(?<![^\W_]){SLUR}s? (?:should|must|deserve|"
            rf"need to|go back|get out|die)(?![^\W_])"
        ),
        ("quoted", "reported", "countered"),
    ),
    Rule(
        "hate",
        "es",
        "mat|exterminar|gasear|quemar|muerte|deber|deben|merecen| son |odio",
        (
            rf"\b(?:hay que |vamos a |deberíamos )(?:matar|exterminar|gasear|quemar|fusilar|eliminar) a (?:todos |"
            rf"todas )?(?:los |las |esos |estos )(?:putos |malditos |putas )?{ES}\b|\bmuerte a (?:todos |"
            rf"todas )?(?:los |las )?{ES}\b|\b(?:los|las|esos|todos los|todas las) {ES} (?:deberían|deben|"
            rf"tienen que|merecen) (?:todos |todas )?(?:morir|desaparecer|ser (?:exterminad|eliminad|asesinad|"
            rf"gasead|fusilad)\w+)|\b(?:los|las|esos|todos los|todas las) {ES} son (?:todos |todas |unos |unas |"
            rf"una |pura ){{0,4}}(?:escoria|basura|ratas|cucarachas|parásitos|subhuman\w+|animales|plaga|cáncer)\b|"
            rf"\bodio a (?:todos |todas )?(?:los |las )(?:putos |malditos )?{ES}\b"
        ),
        ("quoted", "reported", "countered", "negated"),
    ),
    Rule(
        "hate",
        "de",
        "sollten|müssen|gehören|sollen|tod |tötet|vergast|erschießt|vernichtet|sind|hasse",
        (
            rf"\b{DE} (?:sollten|müssen|gehören|sollen)(?: alle| endlich){{0,4}} (?:vergast|getötet|erschossen|"
            rf"ausgerottet|umgebracht|vernichtet|sterben|aufgehängt|verbrannt)|\btod (?:den|allen) {DE}n?\b|"
            rf"\b(?:tötet|vergast|erschießt|vernichtet) (?:alle |die ){{0,4}}{DE}\b|\b{DE} sind (?:alle |doch |nur |"
            rf"nichts als ){{0,4}}(?:abschaum|ungeziefer|parasiten|untermenschen|tiere|ratten|dreck|müll|eine plage|"
            rf"ein krebsgeschwür)\b|\bich hasse (?:alle |die |diese ){{0,4}}{DE}\b"
        ),
        ("quoted", "reported", "countered", "negated"),
    ),
)
