"""Orders to the model hidden in what should only be read: rules of two strengths, in English, Spanish and German.

One strong sign, or two different weak ones, make an order. What rules cannot see (an ordinary request in the wrong
place) is stopped by structure: posts never enter the prompt as anything but data.
"""

from collections.abc import Iterator
from typing import NamedTuple

import regex

from safety.normalise import Normalised


class Order(NamedTuple):
    """A sign of an order at `start:end` of the normalised text."""

    start: int
    end: int
    rule: str
    score: float
    certain: bool


HIDDEN_LETTERS = 4  # tag characters that spell something, where no flag needs them

EARLIER = (
    r"(?:previous|previously|prior|above|earlier|preceding|foregoing|former|existing|original|initial|"
    r"system|developer|past|other)"
)
ORDERS = (
    r"(?:instructions?|prompts?|directions?|directives?|commands?|orders?|rules|guidelines?|context|"
    r"messages?|conversation|inputs?|text|content|tasks?|assignments?|programming)"
)
SECRET = (
    r"(?:system ?prompt|system message|system instructions?|initial prompt|initial instructions|"
    r"original instructions|original prompt|hidden prompt|hidden instructions|secret instructions|"
    r"pre-?prompt|prompt above|instructions above|instructions you (?:were|have been) given|"
    r"developer message)"
)

STRONG = {
    "override": (
        rf"(?:\b(?:ignore|ignoring|disregard|forget|override|bypass|discard|overlook|"
        rf"skip)(?: about)? (?:\w+ ){{0,3}}?{EARLIER} (?:\w+ ){{0,2}}?{ORDERS}\b)"
    ),
    "override_all": (
        r"(?<!\b(?:i|we|they|you|people|users|always|just|to|can|could|may|dogs|kids|men|he|she|who|"
        r"and) )\b(?:ignore|disregard|forget) (?:all|any|every|your)(?: of)?(?: the| your| my|"
        r" these)? (?:instructions|guidelines|prompts?|directives|programming|safety (?:rules|guidelines)|"
        r"restrictions)\b"
    ),
    "extract": (
        rf"\b(?:print|output|reveal|show|repeat|display|tell me|give me|leak|expose|share|write(?: out| down)?|"
        rf"return|copy|dump|what(?:'s| is| are| was| were)|summari[sz]e|translate|recite|"
        rf"disclose)\b[^.!?\n]{{0,30}}?\b(?:your|the|its|all|this|that|any|"
        rf"me) (?:\w+ ){{0,2}}?{SECRET}\b(?! (?:for|of) (?:my|a|an|our)\b)"
    ),
    "persona": (
        r"\byou are (?:now |going to be |from now on ){0,4}(?:dan\b|in dan mode|in developer mode|jailbroken|"
        r"an? (?:unrestricted|unfiltered|uncensored|jailbroken|amoral) )|\b(?:enable|enter|activate|switch to|"
        r"initiate) (?:dan|jailbreak|unrestricted) mode\b|\bdo anything now\b"
    ),
    "above": (
        r"\b(?:ignore|disregard|forget) (?:all (?:of )?)?the above(?: (?:and|instructions|text|prompt|"
        r"directions)|[,.!])"
    ),
    "amoral": (
        r"\b(?:unfiltered|amoral|uncensored|unethical|immoral|unrestricted|evil)(?:,? (?:and |"
        r"or )?(?:unfiltered|amoral|uncensored|unethical|immoral|unrestricted|"
        r"unbiased)){0,4} (?:\w+ ){0,1}?(?:chatbot|ai|assistant|language model|model|bot|gpt)\b|"
        r"\bdeveloper mode (?:enabled|output|activated)|\bantigpt\b|\bchatgpt with (?:dan|developer)"
    ),
    "policy": (
        r"\b(?:free (?:of|from)|without|not bound by|no longer (?:\w+ ){0,3}?bound (?:by|to)|violat\w+|"
        r"against|not (?:have to )?(?:abide by|follow|adhere to)|regardless of) (?:all |any |openai'?s? |its |"
        r"the |your |their ){0,4}(?:content polic(?:y|ies)|(?:ethical|moral)(?: (?:or|and) (?:ethical|"
        r"moral))? (?:guidelines|restrictions|values|rules)|restrictions and filters|safety (?:guidelines|"
        r"filters))"
    ),
    "romance": (
        r"\bignor\w+ (?:\w+ ){0,3}?(?:instruções|instructions|istruzioni|consignes) (?:\w+ )?(?:anteriores|"
        r"précédentes|precedenti|prévias)|\boubliez? (?:\w+ ){0,3}?(?:instructions|consignes) précédentes"
    ),
    "other_scripts": (
        r"(?:忽略|无视|忘记)(?:之前|以上|前面|先前|上述|所有|你|的|一切){0,4}(?:指令|指示|提示|命令|规则)|(?:以前|これまで|上記|前|今まで)の(?:すべての|"
        r"全ての)?(?:指示|命令|プロンプト|ルール)を(?:すべて|全て)?無視|تجاهل (?:جميع |كل )?(?:التعليمات|الأوامر|"
        r"الإرشادات) (?:السابقة|أعلاه)"
    ),
    "no_limits": (
        r"\b(?:act|pretend|behave|role-?play|respond|answer|answer me|reply) (?:as if|as though|like|to be|as|"
        r"with(?:out)?) [^.!?\n]{0,40}?(?:no (?:restrictions|rules|limits|limitations|filters?|guidelines)|"
        r"unrestricted|unfiltered|uncensored|(?:any )?(?:restrictions|limitations|filters?|guidelines|"
        r"ethical))\b"
    ),
    "es": (
        r"\b(?:ignor(?:a|ar|e|en|ad)|olvid(?:a|e|ar|ad)|descarta|omite|desobedece|"
        r"haz caso omiso de) (?:\w+ ){0,3}?(?:instrucciones|órdenes|indicaciones|reglas|mensajes|"
        r"directrices) (?:\w+ ){0,2}?(?:anteriores|previas|previos|dadas|del sistema|recibidas|originales)|"
        r"\b(?:muestra|muéstrame|revela|imprime|dime|escribe|repite|enséñame) [^.!?\n]{0,30}?(?:prompt|"
        r"instrucciones|mensaje) (?:del? sistema|inicial(?:es)?|ocult[oa]s?|originales)"
    ),
    "de": (
        r"\b(?:ignorier(?:e|en|t)?|vergiss|vergesst|missachte|übergehe) (?:\w+ ){0,3}?(?:vorherigen?|"
        r"bisherigen?|obigen?|früheren?|vorangegangenen?|vorigen?|ursprünglichen?|"
        r"vorangehenden?) (?:\w+ ){0,2}?(?:anweisung(?:en)?|instruktionen|befehle|regeln|vorgaben|nachrichten|"
        r"eingaben|prompts?)|\b(?:zeige?|gib|verrate?|nenne?|wiederhole?|"
        r"drucke?) [^.!?\n]{0,30}?(?:system-?prompt|systemanweisung\w*|systemnachricht|"
        r"versteckten? anweisung\w*|ursprünglichen? anweisung\w*)"
    ),
}
WEAK = {
    "forget": (
        r"\b(?:forget|disregard|ignore) (?:everything|all|anything)(?: that)? (?:you(?:'ve| have| were|"
        r" had)? (?:\w+ )?(?:saw|seen|read|told|learned|been told|were told|been given)|above|before this|"
        r"written above)\b"
    ),
    "new_task": (
        r"\byour (?:new |real |actual |true |only |sole |primary |next )?(?:task|objective|goal|instructions?|"
        r"role|purpose|mission|job) (?:is|are)(?: now)? (?:now|to)\b|\bnew (?:instructions?|task|"
        r"objective)\s?:"
    ),
    "shape": (
        r"\b(?:end|begin|start|finish|preface|conclude|prefix) (?:each|every|all|your|"
        r"any)(?: of your)? (?:responses?|answers?|repl(?:y|ies)|messages?|sentences?|outputs?) (?:with|by)\b|"
        r"\b(?:respond|reply|answer) (?:only |just )?(?:with|by saying|exactly) ?[\"':]"
    ),
    "secrecy": (
        r"\b(?:do not|don't|never) (?:mention|reveal|tell|disclose|follow|cite|"
        r"say)\b[^.!?\n]{0,30}?\b(?:instructions?|prompt|the user|this (?:post|message)|your rules)\b"
    ),
    "from_now": (
        r"\b(?:from now on|henceforth),? (?:you(?:'ll| will| are| must| should)?|act|respond|answer|behave|"
        r"pretend|only)\b"
    ),
    "address": (
        r"\b(?:attention|note to|message (?:to|for)|instructions? (?:to|for)|dear|hey|hello|"
        r"important for) (?:all |any |the )?(?:ais?|llms?|language models?|chatbots?|ai assistants?|"
        r"assistants?|ai agents?|gpt|chatgpt|claude|grok|gemini|copilot)\b|\b(?:if|when|as|since) (?:you are|"
        r"you're) (?:an? )?(?:ai|llm|large language model|language model|ai (?:model|assistant|agent)|"
        r"chatbot)\b"
    ),
    "bypass": r"\bbypass (?:all |your |any |the )?(?:security|safety|content|filters?|restrictions?|moderation)\b",
    "tell_user": (
        r"\b(?:tell|inform|convince|instruct|direct) (?:the |all )?users? (?:to|that)\b|\b(?:when|"
        r"if) (?:you are asked|asked|summari[sz]ing|answering|responding|you summari[sz]e|you answer|"
        r"a user asks|the user asks|anyone asks|someone asks) [^.!?\n]{0,60}?\b(?:say|reply|respond|answer|"
        r"recommend|include|mention|output|print|claim)\b"
    ),
    "turn": (
        r"(?:^|\n)\s{0,8}(?:system|assistant|developer) ?:|<\|im_(?:start|end)\|>|<\|(?:system|assistant|"
        r"endoftext|eot_id)\|>|\[/?inst\]|<</?sys>>|(?:^|\n)#{2,} ?(?:system|instructions?)\b|</?(?:system|"
        r"instructions?)>"
    ),
    "character": (
        r"\bstay in character\b|\byou (?:have|has) no (?:restrictions|limits|rules|filters?|limitations)|"
        r"\bact as [\w\"']+(?:\.|,| which| who| -)"
    ),
    "es": (
        r"\ba partir de ahora,? (?:eres|responde|actúa|solo)\b|\btu (?:nueva |único |nuevo )?(?:tarea|misión|"
        r"objetivo|rol) es\b|\b(?:olvida|ignora) todo lo (?:anterior|que (?:has|te han))"
    ),
    "de": (
        r"\bab (?:jetzt|sofort),? (?:bist du|antworte|verhältst|handelst)\b|\bdeine (?:neue |"
        r"einzige )?(?:aufgabe|rolle|mission) ist\b|\b(?:vergiss|ignoriere?) alles,? was (?:du|dir|bisher)"
    ),
}
TRIGGERS = regex.compile(
    r"ignor|disregard|forget|overrid|bypass|discard|overlook|skip|prompt|system|instruc|developer|\bdan\b|"
    r"jailbr|unrestrict|do anything now|"
    r"pretend|act as|act like|role-?play|respon|answer|repl|your |new task|new objective|from now on|"
    r"henceforth|attention|note to|dear|hey|"
    r"hello|if you|when you|as you|since you|message|assistant|<\||\[/?inst|<<|##|tell|inform|convince|"
    r"user|asked|summari|"
    r"olvid|descart|omit|haz caso|muestra|muéstra|revela|imprim|dime|a partir|tu |vergiss|vergess|"
    r"missacht|übergeh|ab jetzt|ab sofort|deine|"
    r"zeig|verrat|amoral|unfilter|uncensor|immoral|unethical|evil|antigpt|chatgpt|content polic|ethical|"
    r"moral|safety|character|you ha|oubli|忽略|无视|忘记|無視|تجاهل"
)
STRONG_SIGNS = {rule: regex.compile(pattern) for rule, pattern in STRONG.items()}
WEAK_SIGNS = {rule: regex.compile(pattern) for rule, pattern in WEAK.items()}


def orders(text: Normalised) -> Iterator[Order]:
    """The signs of orders to the model; `certain` ones are enough to act on."""
    if text.hidden >= HIDDEN_LETTERS:
        yield Order(0, len(text.text), "hidden", 1.0, True)
    if not TRIGGERS.search(text.lower):
        return
    line = text.line
    for rule, sign in STRONG_SIGNS.items():
        if found := sign.search(line):
            yield Order(*found.span(), rule, 1.0, True)
    weak = [(rule, found) for rule, sign in WEAK_SIGNS.items() if (found := sign.search(text.lower))]
    for rule, found in weak:
        yield Order(*found.span(), rule, 0.4 if len(weak) == 1 else 0.8, len(weak) > 1)
