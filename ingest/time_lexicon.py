"""How English, Spanish, German and Chinese speak of past times: words and phrases only. ingest.time_words reads them.

A phrase is a regular expression over text without accents, in lower case; in it a space stands for any white space, `~`
for white space or none, and `{slot}` for a word of the table of that name. Words stand here as they are written in the
middle of a sentence: one that is lower case here and has a capital there is taken for a name ("Chris Hoy").
"""

from dataclasses import dataclass
from typing import Literal

Part = Literal["early", "morning", "midday", "afternoon", "evening", "night"]
Span = Literal["week", "weekend", "month"]
Unit = Literal["minute", "hour", "day", "week", "month"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One way to say when something was. `alone`: what must stand before it when nothing else does ("on "); None if it
    means a time only after a "since". `after_since`: what may stand between that and it."""

    kind: str
    alone: str | None
    after_since: str
    core: str


@dataclass(frozen=True, slots=True, eq=False)
class Lexicon:
    number: dict[str, float]
    unit: dict[str, tuple[Unit, float]]  # and how many are meant where no number is said: "the last hours"
    day: dict[str, int]  # days from today
    part: dict[str, Part]
    day_part: dict[str, tuple[int, Part]]
    span: dict[str, tuple[Span, int]]  # and how many of them from the one that is now
    weekday: dict[str, int]  # Monday is 0
    month: dict[str, int]
    half: dict[str, int]  # 0: before noon, 12: after
    hour_name: dict[str, int]
    fraction: dict[str, int]  # minutes past the hour
    clock: tuple[str, ...]
    moments: tuple[Moment, ...]
    since: tuple[tuple[str, str], ...]  # what stands before and after a moment
    phrases: tuple[tuple[str, str], ...]  # kind, phrase
    no_times: tuple[str, ...]  # phrases that hold a time word and mean none
    capitals: tuple[str, ...] = ()  # more words with a capital in mid-sentence
    is_spaced: bool = True
    clause_words: str = ""  # what may follow "since the 3rd", which is no "since the 3rd goal"


def _numbered(words: str, first: int = 1) -> dict[str, float]:
    return {word: float(number) for number, word in enumerate(words.split(), first)}


def _ordered(words: str, first: int = 0) -> dict[str, int]:
    """`a/b` are two words for one."""
    return {word: number for number, both in enumerate(words.split(), first) for word in both.split("/")}


def _units(minute: str, minutes: str, hour: str, hours: str, day: str, days: str, week: str, weeks: str, month: str,
           months: str) -> dict[str, tuple[Unit, float]]:  # fmt: skip
    some: tuple[tuple[Unit, str, float], ...] = (
        ("minute", minute, 1), ("minute", minutes, 15), ("hour", hour, 1), ("hour", hours, 6), ("day", day, 1),
        ("day", days, 3), ("week", week, 1), ("week", weeks, 3), ("month", month, 1), ("month", months, 3),
    )  # fmt: skip
    return {word: (unit, count) for unit, words, count in some for word in words.split()}


ENGLISH = Lexicon(
    number=_numbered("one two three four five six seven eight nine ten eleven twelve")
    | {"a": 1, "an": 1, "half an": 0.5, "half a": 0.5, "couple of": 2, "a couple of": 2, "few": 3, "a few": 3,
       "several": 4, "fifteen": 15, "twenty": 20, "twenty-four": 24, "twenty four": 24, "thirty": 30, "forty": 40,
       "forty-eight": 48, "sixty": 60, "ninety": 90},
    unit=_units("", "minutes mins min", "hour hr", "hours hrs", "day", "days", "week", "weeks", "month", "months"),
    day={"today": 0, "today's": 0, "yesterday": -1, "yesterday's": -1, "the day before yesterday": -2},
    part={"morning": "morning", "midday": "midday", "noon": "midday", "afternoon": "afternoon", "evening": "evening",
          "night": "night"},
    day_part={"this morning": (0, "morning"), "this afternoon": (0, "afternoon"), "this evening": (0, "evening"),
              "tonight": (0, "evening"), "last night": (-1, "night"), "last night's": (-1, "night"),
              "this morning's": (0, "morning"), "last evening": (-1, "evening"), "overnight": (-1, "night")},
    span={"this week": ("week", 0), "this week's": ("week", 0), "last week": ("week", -1), "last week's": ("week", -1),
          "this month": ("month", 0), "last month": ("month", -1), "this weekend": ("weekend", 0),
          "the weekend": ("weekend", 0), "last weekend": ("weekend", -1), "last weekend's": ("weekend", -1)},
    weekday=_ordered("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    month=_ordered("January/Jan February/Feb March/Mar April/Apr May June/Jun July/Jul August/Aug September/Sept/Sep "
                   "October/Oct November/Nov December/Dec", 1),
    half={"am": 0, "a.m.": 0, "a.m": 0, "in the morning": 0, "pm": 12, "p.m.": 12, "p.m": 12, "in the afternoon": 12,
          "in the evening": 12, "at night": 12},
    hour_name={"noon": 12, "midday": 12, "midnight": 0},
    fraction={},
    clock=("{hour}(?:[:.]{minute})?~{half}", "{hour}:{minute}", "{hour} o'clock(?: {half})?", "{hour_name}"),
    moments=(
        Moment("day", "", "", "{day}"),
        Moment("day_part", "", "", "{day_part}"),
        Moment("day_part", "", "", "{day} (?:in the )?{part}"),
        Moment("day_clock", "", "", "{day} (?:at |around )?{clock}"),
        Moment("day_clock", "", "", "(?:at |around )?{clock} {day}"),
        Moment("day_part", "early ", "early ", "{day_part}"),
        Moment("span", "(?:over |during |at |on )?", "", "{span}"),
        Moment("last_weekday", "(?:on )?(?:last |this past )", "(?:last )?", "{weekday}(?:'s)?"),
        Moment("weekday", "on ", "", "{weekday}"),
        Moment("weekday_part", "(?:on |last )?", "(?:last )?", "{weekday} {part}"),
        Moment("clock", "(?:at|around) ", "", "{clock}"),
        Moment("date", "on ", "", "(?:the )?{date}(?:st|nd|rd|th)? (?:of )?{month}"),
        Moment("date", "on ", "", "{month} (?:the )?{date}(?:st|nd|rd|th)?"),
        Moment("nth", "on ", "", "the {date}(?:st|nd|rd|th)"),
    ),
    since=(("(?:ever )?since ", ""), ("as of ", ""), ("starting ", ""), ("from ", " on(?:wards?)?")),
    phrases=(
        ("rolling", "(?:(?:in|within|over|during|for|from) )?(?:the )?(?:last|past|previous) (?:{number} )?{unit}"
                    "(?! of )"),
        ("rolling", "since {number} {unit} ago"),
        ("ago", "(?:about |around )?{number} {unit} ago"),
        ("between", "(?:{day} )?between {clock} and {clock_to}(?: {day})?"),
        ("between", "(?:{day} )?between {hour}(?:[:.]{minute})? and {clock_to}(?: {day})?"),
        ("between", "(?:{day} )?from {clock} (?:to|until|till) {clock_to}(?: {day})?"),
        ("between", "(?:{day} )?from {hour}(?:[:.]{minute})?~(?:to|until|till|-)~{clock_to}(?: {day})?"),
        ("now", "(?:right|just) now"),
    ),
    no_times=(
        "(?:usa|russia|india|psychology) today", "(?:the )?today (?:show|programme|program|fm)", "hours of le mans",
        "(?:on )?the last day", "last day of", "last (?:days|weeks|months|hours|minutes|week|month) of",
        "last week tonight", "the tonight show", "tonight show", "yesterday once more", "born yesterday",
        "yesterday by (?:the beatles|paul mccartney)", "(?:saturday|sunday|monday|friday) night (?:live|lights|"
        "football|raw|funkin|dinner|fever)", "last night in soho", "one night in", "day after tomorrow",
        "since the 3rd century", "the weekend edition", "every {weekday}", "next {weekday}",
        "(?:(?<!day )before|until|till|prior to|not) (?:{day}|{day_part}|{span})",
        "{clock} (?:utc|gmt|[ecmp][sd]t|bst|cest|cet)",
    ),
    clause_words="in at on near about with to and or for of by around is are was were did has have what who how why",
)  # fmt: skip

SPANISH = Lexicon(
    number=_numbered("uno dos tres cuatro cinco seis siete ocho nueve diez once doce")
    | {"un": 1, "una": 1, "media": 0.5, "medio": 0.5, "par de": 2, "un par de": 2, "unas": 3, "unos": 3, "pocas": 3,
       "pocos": 3, "algunas": 3, "varios": 4, "varias": 4, "quince": 15, "veinte": 20, "veinticuatro": 24,
       "treinta": 30, "cuarenta": 40, "cuarenta y ocho": 48, "sesenta": 60, "noventa": 90},
    unit=_units("", "minutos", "hora", "horas", "día", "días", "semana", "semanas", "mes", "meses"),
    day={"hoy": 0, "ayer": -1, "anteayer": -2, "antes de ayer": -2, "antier": -2},
    part={"por la mañana": "morning", "en la mañana": "morning", "al mediodía": "midday", "a mediodía": "midday",
          "por la tarde": "afternoon", "en la tarde": "afternoon", "por la noche": "night", "en la noche": "night",
          "de madrugada": "early", "de noche": "night"},
    day_part={"esta mañana": (0, "morning"), "esta tarde": (0, "afternoon"), "esta noche": (0, "evening"),
              "esta madrugada": (0, "early"), "anoche": (-1, "night"), "antenoche": (-2, "night"),
              "anteanoche": (-2, "night"), "este mediodía": (0, "midday")},
    span={"esta semana": ("week", 0), "la semana pasada": ("week", -1), "la pasada semana": ("week", -1),
          "este mes": ("month", 0), "el mes pasado": ("month", -1), "el pasado mes": ("month", -1),
          "este fin de semana": ("weekend", 0), "el fin de semana": ("weekend", 0),
          "el fin de semana pasado": ("weekend", -1), "el pasado fin de semana": ("weekend", -1)},
    weekday=_ordered("lunes martes miércoles jueves viernes sábado domingo"),
    month=_ordered("enero febrero marzo abril mayo junio julio agosto septiembre/setiembre octubre noviembre diciembre",
                   1),
    half={"am": 0, "a.m.": 0, "a. m.": 0, "de la mañana": 0, "de la madrugada": 0, "pm": 12, "p.m.": 12, "p. m.": 12,
          "de la tarde": 12, "de la noche": 12},
    hour_name={"mediodía": 12, "el mediodía": 12, "medianoche": 0, "la medianoche": 0},
    fraction={"y media": 30, "y cuarto": 15},
    clock=("(?:las|la) {hour}(?:(?:[:.]{minute})| {fraction})?(?:~(?:h|hs|horas)\\b)?(?:~{half})?", "{hour_name}"),
    moments=(
        Moment("day", "", "(?:el )?(?:dia de )?", "{day}"),
        Moment("day_part", "", "", "{day_part}"),
        Moment("day_part", "", "", "{day},? {part}"),
        Moment("day_clock", "", "", "{day},? (?:a )?{clock}"),
        Moment("span", "(?:en |durante )?", "", "{span}"),
        Moment("last_weekday", "(?:el )?", "(?:el )?", "(?:pasado {weekday}|{weekday} pasado)"),
        Moment("last_weekday", None, "(?:el )?", "{weekday}"),
        Moment("weekday", "(?:el |este )", "(?:el |este )?", "{weekday}(?! que viene| proximo)"),
        Moment("weekday_part", "(?:el |este )?", "(?:el )?", "{weekday} {part}"),
        Moment("clock", "(?:a|sobre) ", "", "{clock}"),
        Moment("date", "el (?:dia )?", "(?:el )?(?:dia )?", "{date} de {month}"),
        Moment("nth", "el dia ", "el (?:dia )?", "{date}"),
    ),
    since=(("desde ", ""), ("a partir de ", "")),
    phrases=(
        ("rolling", "(?:(?:en|durante|desde) )?(?:(?:las|los|la|el) )?(?:ultim[oa]s?|pasad[oa]s) (?:{number} )?{unit}"
                    "(?! del? )"),
        ("rolling", "(?:en )?(?:las|los) {number} (?:ultim[oa]s|pasad[oa]s) {unit}"),
        ("rolling", "desde hace {number} {unit}"),
        ("ago", "hace {number} {unit}"),
        ("between", "(?:{day},? )?entre {clock} y {clock_to}(?: (?:de )?{day})?"),
        ("between", "(?:{day},? )?(?:de|desde) {clock} (?:a|hasta) {clock_to}(?: (?:de )?{day})?"),
        ("now", "(?:ahora mismo|justo ahora|en este (?:mismo )?momento)"),
    ),
    no_times=("(?:de|a) ultima hora", "(?<!la )ultima hora~:", "hasta (?:{day}|{day_part}|{span})",
              "hoy (?:por hoy|en dia)", "el ultimo dia", "proximo {weekday}",
              "noche de(?:l)? {weekday} \\w+", "dia {date} a dia", "hace un dia (?:bueno|malo|precioso|horrible)"),
    clause_words="en a al de del por con y o sobre cerca hay ha han que se",
)  # fmt: skip

GERMAN = Lexicon(
    number=_numbered("ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf")
    | {"einer": 1, "einem": 1, "eine": 1, "einen": 1, "halben": 0.5, "halbe": 0.5, "einer halben": 0.5,
       "anderthalb": 1.5, "eineinhalb": 1.5, "paar": 3, "ein paar": 3, "einigen": 3, "einige": 3, "wenigen": 3,
       "mehreren": 4, "fünfzehn": 15, "zwanzig": 20, "vierundzwanzig": 24, "dreißig": 30, "vierzig": 40,
       "achtundvierzig": 48, "sechzig": 60, "neunzig": 90},
    unit=_units("", "Minuten", "Stunde", "Stunden", "Tag Tages", "Tage Tagen", "Woche", "Wochen", "Monat",
                "Monate Monaten"),
    day={"heute": 0, "gestern": -1, "vorgestern": -2},
    part={"früh": "morning", "Morgen": "morning", "Vormittag": "morning", "Mittag": "midday",
          "Nachmittag": "afternoon", "Abend": "evening", "Nacht": "night"},
    day_part={"heute Nacht": (-1, "night"), "letzte Nacht": (-1, "night"), "vergangene Nacht": (-1, "night"),
              "in der letzten Nacht": (-1, "night"), "in der vergangenen Nacht": (-1, "night"),
              "der letzten Nacht": (-1, "night"), "diesen Morgen": (0, "morning"), "diesen Abend": (0, "evening")},
    span={"diese Woche": ("week", 0), "in dieser Woche": ("week", 0), "letzte Woche": ("week", -1),
          "vergangene Woche": ("week", -1), "vorige Woche": ("week", -1), "letzter Woche": ("week", -1),
          "diesen Monat": ("month", 0), "letzten Monat": ("month", -1), "vergangenen Monat": ("month", -1),
          "dieses Wochenende": ("weekend", 0), "am Wochenende": ("weekend", 0), "dem Wochenende": ("weekend", 0),
          "letztes Wochenende": ("weekend", -1), "letzten Wochenende": ("weekend", -1),
          "am letzten Wochenende": ("weekend", -1), "vergangenes Wochenende": ("weekend", -1),
          "am vergangenen Wochenende": ("weekend", -1)},
    weekday=_ordered("Montag Dienstag Mittwoch Donnerstag Freitag Samstag/Sonnabend Sonntag"),
    month=_ordered("Januar/Jänner Februar März April Mai Juni Juli August September Oktober November Dezember", 1),
    half={"morgens": 0, "früh": 0, "vormittags": 0, "nachts": 0, "nachmittags": 12, "abends": 12},
    hour_name={"Mittag": 12, "zwölf Uhr mittags": 12, "Mitternacht": 0},
    fraction={},
    clock=("{hour}(?:[:.]{minute})?~uhr(?: {minute})?(?: {half})?", "{hour}:{minute}", "{hour_name}"),
    moments=(
        Moment("day", "", "", "{day}"),
        Moment("day_part", "", "", "{day_part}"),
        Moment("day_part", "", "", "{day} {part}"),
        Moment("day_clock", "", "", "{day} (?:um |gegen )?{clock}"),
        Moment("span", "", "", "{span}"),
        Moment("last_weekday", "(?:am )?(?:letzten|vergangenen) ", "(?:letztem |letzten |vergangenem )?", "{weekday}"),
        Moment("weekday", "(?:am|diesen) ", "", "{weekday}"),
        Moment("weekday_part", "(?:am )?", "", "{weekday}~{part}"),
        Moment("clock", "(?:um|gegen) ", "", "{clock}"),
        Moment("date", "am ", "dem ", "{date}\\. {month}"),
        Moment("nth", "am ", "dem ", "{date}\\."),
    ),
    since=(("seit ", ""),),
    phrases=(
        ("rolling", "(?:in|wahrend|uber|innerhalb|seit) (?:den|der|die|dem) (?:letzten|vergangenen) (?:{number} )?"
                    "{unit}(?! des | von )"),
        ("rolling", "(?:(?:die|der|den) )?(?:letzten|vergangenen|letzte|vergangene) {number} {unit}(?! des | von )"),
        ("rolling", "(?:die )?(?:letzte|vergangene) stunde(?! der | des | von | vor )"),
        ("rolling", "seit {number} {unit}"),
        ("ago", "vor (?:etwa |rund |ca\\. )?{number} {unit}"),
        ("between", "(?:{day} )?zwischen {clock} und {clock_to}(?: {day})?"),
        ("between", "(?:{day} )?zwischen {hour}(?:[:.]{minute})? und {clock_to}(?: {day})?"),
        ("between", "(?:{day} )?von {hour}(?:[:.]{minute})?(?:~uhr)? bis {clock_to}(?: {day})?"),
        ("now", "(?:gerade (?:eben|jetzt)|genau jetzt|jetzt gerade)"),
    ),
    no_times=("(?:zdf )?heute[ -](?:show|journal|plus|xpress)", "von heute auf morgen",
              "bis (?:{day}|{day_part}|{span})", "von gestern (?:sein|bin|ist)", "schnee von gestern",
              "(?:in )?letzte[r]? minute", "nachsten {weekday}", "kommenden {weekday}",
              "heute morgen ist ein neuer"),
    capitals=("Uhr", "Stunde"),
    clause_words="in an am auf bei und oder mit zu um uber der die das passiert",
)  # fmt: skip

_TENS = ("", "十", *(f"{digit}十" for digit in "二三四五六七八九"))
CHINESE = Lexicon(
    number={f"{tens}{ones}": float(10 * i + j) for i, tens in enumerate(_TENS)
            for j, ones in enumerate(["", *"一二三四五六七八九"]) if i or j}
    | {"两": 2, "兩": 2, "半": 0.5, "几": 3, "幾": 3, "数": 4},
    unit=_units("", "分钟 分鐘", "", "小时 小時 钟头 鐘頭", "", "天 日", "", "周 週 星期 礼拜 禮拜", "", "月"),
    day={"今天": 0, "今日": 0, "昨天": -1, "昨日": -1, "前天": -2, "大前天": -3},
    part={"早上": "morning", "早晨": "morning", "上午": "morning", "中午": "midday", "下午": "afternoon",
          "傍晚": "evening", "晚上": "evening", "夜里": "night", "深夜": "night", "凌晨": "early", "清晨": "early"},
    day_part={"今早": (0, "morning"), "今晨": (0, "early"), "今晚": (0, "evening"), "昨晚": (-1, "night"),
              "昨夜": (-1, "night"), "今天早上": (0, "morning")},
    span={"这周": ("week", 0), "這週": ("week", 0), "本周": ("week", 0), "本週": ("week", 0), "上周": ("week", -1),
          "上週": ("week", -1), "上星期": ("week", -1), "这个星期": ("week", 0), "上个星期": ("week", -1),
          "这个月": ("month", 0), "本月": ("month", 0), "上个月": ("month", -1), "上個月": ("month", -1),
          "上周末": ("weekend", -1), "上週末": ("weekend", -1), "这周末": ("weekend", 0), "周末": ("weekend", 0),
          "週末": ("weekend", 0), "这个周末": ("weekend", 0)},
    weekday={f"{name}{day}": number for name in ("周", "週", "星期", "礼拜", "禮拜")
             for number, both in enumerate(("一", "二", "三", "四", "五", "六", "日天")) for day in both},
    month=_ordered("一月 二月 三月 四月 五月 六月 七月 八月 九月 十月 十一月 十二月", 1)
    | {f"{number}月": number for number in range(1, 13)},
    half={"早上": 0, "早晨": 0, "上午": 0, "凌晨": 0, "清晨": 0, "中午": 12, "下午": 12, "傍晚": 12, "晚上": 12},
    hour_name={"中午": 12, "半夜": 0, "午夜": 0},
    fraction={"半": 30, "一刻": 15},
    clock=("{half}?~{hour}~[点點时時](?!间|間|钟内)[钟鐘整]?(?:{fraction}|~{minute}~分?)?",
           "{half}?~{hour}:{minute}", "{hour_name}"),
    moments=(
        Moment("day", "(?<![以之目提生从早年])", "", "{day}(?!气|氣)"),
        Moment("day_part", "", "", "{day_part}"),
        Moment("day_part", "", "", "{day}的?{part}"),
        Moment("day_clock", "", "", "{day}的?{clock}"),
        Moment("span", "(?<!下|每)", "", "{span}(?![一二三四五六日天末])"),
        Moment("last_weekday", "上个?", "(?:上个?)?", "{weekday}"),
        Moment("weekday", "(?<!下|每|个|上|個)这?", "这?", "{weekday}"),
        Moment("weekday_part", "(?<!下|每|个|個)[上这]?", "[上这]?", "{weekday}{part}"),
        Moment("clock", "在?", "", "{clock}"),
        Moment("date", "", "", "{month}~{date}~[日号號]"),
        Moment("nth", None, "", "{date}~[日号號]"),
    ),
    since=(("(?:从|從|自从|自從|自|打)~", "(?:~(?:开始|開始|起|以来|以來|到现在|到現在|至今|之后|之後|以后|以後))?"),
           ("", "~(?:以来|以來|至今|到现在|到現在|开始|開始|起|之后|之後|以后|以後)")),
    phrases=(
        ("rolling", "(?:在)?(?:最近|过去|過去|刚过去|(?<![附将將接就临臨])近|这|這)的?~{number}~[个個]?{unit}"
                    "(?:之内|以内|里|裡|内|內|中|来|來)?"),
        ("rolling", "{number}~[个個]?{unit}(?:以来|以來)"),
        ("ago", "{number}~[个個]?{unit}(?:之|以)?前"),
        ("between", "(?:{day}的?)?(?:从|從|在)?~{clock}~(?:到|至|和|-|—)~{clock_to}(?:之间|之間|期间|期間)?"),
        ("now", "(?:刚刚|剛剛|刚才|剛才|此刻|就在现在)"),
    ),
    no_times=("今日(?:头条|頭條|说法|俄罗斯|美国)", "昨日重现", "下[周週]{weekday}", "半天"),
    is_spaced=False,
)  # fmt: skip

LEXICONS = (ENGLISH, SPANISH, GERMAN, CHINESE)
