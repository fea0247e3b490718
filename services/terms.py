"""A sentence -> what it claims: content words, numbers, whether it says no. For comparing texts, not for reading."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

_CJK = "\u0e00-\u0e7f\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"  # scripts compared by pairs of letters
_LETTER = rf"(?:(?![{_CJK}])[^\W\d_])"
_TOKEN = re.compile(rf"[{_CJK}]+|{_LETTER}+(?:'{_LETTER}+)?|\d+(?:[.,:/-]\d+)*")
_HIRAGANA = re.compile(r"[\u3040-\u309f]+")  # Japanese endings and particles
_MARKS = re.compile(r"[\u0610-\u061a\u0640\u064b-\u065f\u0670]")  # Arabic vowel signs and stretching
_CLAUSE_END = re.compile(
    r"(?<=[.!?;,])\s+|[。！？；、，،؛؟\n]|\s(?:-|and|but|y|pero|und|aber|et|mais)\s", re.IGNORECASE
)


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


# "4 min ago" is said about a post, not by it.
_AGE = re.compile(
    r"\b\d+\s*(?:s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?) ago\b"
    r"|\bhace \d+ \w+|\bvor \d+ \w+|\d+\s*(?:分钟|分鐘|分|小时|小時|時間)前"
)
_TWELVE_HOURS = re.compile(r"(?<![\d:.])(\d{1,2})(?:[:.](\d\d))?\s*([ap])\.?\s?m\b\.?")
_FULL_HOUR = re.compile(r"(?<![\d:.])(\d{1,2})(?:\s*(?:uhr|o'clock)\b|\s*[时時点點시](?:\s*(\d{1,2})\s*[分분])?)")
# Words that say how many or when: as binding as digits, one spelling for all languages.
_SPELLED = {
    word: (line.split()[0])
    for line in """2 two dos zwei
        3 three tres drei trois
        4 four cuatro vier quatre
        5 five cinco fünf cinq
        6 six seis sechs
        7 seven siete sieben
        8 eight ocho acht
        9 nine nueve neun
        10 ten diez zehn
        12 twelve doce zwölf douze
        20 twenty veinte zwanzig vingt
        50 fifty cincuenta fünfzig cinquante
        0:00 midnight medianoche mitternacht minuit
        12:00 noon midday mediodía mittag midi
        mon monday lunes montag lundi
        tue tuesday martes dienstag mardi
        wed wednesday miércoles mittwoch mercredi
        thu thursday jueves donnerstag jeudi
        fri friday viernes freitag vendredi
        sat saturday sábado samstag samedi
        sun sunday domingo sonntag dimanche
        jan january enero januar janvier
        feb february febrero februar février
        mar march marzo märz mars
        apr april abril avril
        jun june junio juni juin
        jul july julio juli juillet
        aug august agosto août
        sep september septiembre septembre
        oct october octubre oktober octobre
        nov november noviembre novembre
        dec december diciembre dezember décembre""".splitlines()
    for word in line.split()[1:]
}

# What is at one end of these scales cannot be at the other.
_SCALES = (
    (
        "open opened abierto abierta abiertos abiertas offen geöffnet ouvert ouverte 开放 開放 مفتوح مفتوحة",
        "closed shut closure cerrado cerrada cerrados cerradas geschlossen gesperrt fermé fermée 关闭 閉鎖 مغلق مغلقة",
    ),
    ("rise rises rising rose up sube suben steigt steigen", "fall falls falling fell down baja bajan sinkt sinken"),
    ("won wins win winner gana ganó gewinnt gewann", "lost loses lose concedes conceded pierde perdió verliert verlor"),
    ("alive safe", "dead died killed"),
)
_OPPOSITES = {word: (scale, end) for scale, ends in enumerate(_SCALES) for end in (0, 1) for word in ends[end].split()}

_NEGATIONS = _listed(
    """no not never none nobody nothing neither nor without cannot cant dont doesnt didnt isnt arent wasnt werent
    wont hasnt havent couldnt shouldnt wouldnt denied denies false untrue nunca sin ningun ninguna nadie tampoco
    falso falsa nicht kein keine keinen keiner keinem nie niemand ohne falsch pas jamais aucun aucune لا لم لن
    ليس ليست غير بدون"""
)
_CJK_NEGATION = re.compile(r"不(?!久|仅|僅|少|过|過|同)|没|沒|未|ない|ません|なかった|ありませ|誤|아니|없|않")

# Function words, and the words with which an answer speaks about its posts instead of from them.
_STOPWORDS = _listed(
    """a an the this that these those there here it its he she they them his her their we us our you your i me my
    is are was were be been being am do does did done has have had having will would can could shall should may
    might must of in on at to for from by with about into over under after before between during until since
    through than then as if but and or so because while when where which who whom whose what why how also just
    only still now today currently very more most some any all both each other such own same too up down out off
    again further once s t d ll m re ve get got post posts posted user users report reports reported according
    says said say saying mention mentions mentioned state states stated information update updates latest recent
    recently newest people yes however question answer el la los las un una unos unas lo al del de en y o u que
    se su sus por para con sobre entre desde hasta es son era fue ha han hay ser estar está están esta este esto
    estos estas como más muy ya pero si sí según también aún todavía ahora der die das den dem des ein eine
    einen einem einer eines und oder aber in im am an auf aus bei bis mit nach seit von vom vor zu zum zur über
    unter um ist sind war waren wird werden wurde wurden hat haben hatte es er sie wir ihr ich du man sich auch
    noch nur schon sehr so wie wenn dass als laut jetzt heute derzeit weiter weiterhin le les une des du et ou
    est sont dans sur pour par avec ce cette ces qui que في من على إلى الى عن مع هذا هذه ذلك التي الذي أن ان إن
    قد كان كانت هو هي و أو ثم بعد قبل حتى كما"""
)
_CJK_STOP = _listed("的 了 是 在 和 与 與 也 都 就 着 被 把 将 將 已 已经 已經 目前 现在 現在 根据 根據 表示 帖子 投稿")
_ENDINGS = re.compile(r"(?:ingly|ings?|edly|ies|ied|ed|es|en|ern|er|em|ly|os|as|s|e|o|a|y)$")


@dataclass(frozen=True, slots=True)
class Terms:
    """`words` are light stems or pairs of letters, `numbers` one spelling each (18:00 for 6 pm, 3200 for 3,200)."""

    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool
    ends: frozenset[tuple[int, int]] = frozenset()  # of scales such as open and closed

    def __len__(self) -> int:
        return len(self.words) + len(self.numbers)


def terms(text: str) -> Terms:
    text = _plain(text)
    words: set[str] = set()
    numbers: set[str] = set()
    ends = {_OPPOSITES[token] for token in _OPPOSITES if token in text and not token.isascii()}
    negated = _CJK_NEGATION.search(text) is not None
    for token in _TOKEN.findall(_AGE.sub(" ", text)):
        bare = token.replace("'", "")
        if token in _OPPOSITES:
            ends.add(_OPPOSITES[token])
        if token[0].isdigit():
            numbers.add(_number(token))
        elif bare in _NEGATIONS or token.endswith("n't"):
            negated = True
        elif token in _SPELLED:
            numbers.add(_SPELLED[token])
        elif re.match(rf"[{_CJK}]", token):
            words.update(_pairs(token))
        elif token not in _STOPWORDS and len(token) > 1:
            words.add(_stem(token))
    return Terms(frozenset(words), frozenset(numbers), negated, frozenset(ends))


def clauses(text: str) -> list[str]:
    return [clause for clause in _CLAUSE_END.split(text) if clause.strip()]


def _plain(text: str) -> str:
    text = _MARKS.sub("", unicodedata.normalize("NFKC", text).casefold())
    text = re.sub("[\u2018\u2019\u02bc]", "'", re.sub("[\u2010-\u2015\u2212]", "-", text))
    text = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)
    text = _TWELVE_HOURS.sub(lambda found: _clock(int(found[1]) % 12 + 12 * (found[3] == "p"), found[2]), text)
    return _FULL_HOUR.sub(lambda found: _clock(int(found[1]), found[2]), text)


def _clock(hour: int, minute: str | None) -> str:
    return f" {hour}:{int(minute or 0):02d} "


def _number(token: str) -> str:
    if re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", token):
        return re.sub(r"[.,]", "", token)
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)", token)
    if clock:
        return f"{int(clock[1])}:{clock[2]}"
    return token.replace(",", ".").lstrip("0") or "0"


def _pairs(run: str) -> Iterator[str]:
    """Pairs of neighbours; a lone letter as it is. Hiragana parts them: it is mostly grammar."""
    for part in _HIRAGANA.split(run):
        pairs = [left + right for left, right in zip(part, part[1:], strict=False)] if len(part) > 1 else [part]
        yield from (pair for pair in pairs if pair and pair not in _CJK_STOP and not _CJK_STOP.intersection(pair))


def _stem(word: str) -> str:
    word = "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))
    if "\u0600" <= word[0] <= "\u06ff":
        return re.sub("^(?:وال|بال|لل|ال|و|ب)(?=..)", "", re.sub("[أإآ]", "ا", word)).rstrip("ةه")
    shorter = _ENDINGS.sub("", word)
    return (shorter if len(shorter) >= 4 else word)[:8]
