"""Phone numbers by the numbering plans of `phonenumbers`: with a country code anywhere, else as 28 regions dial them.

The plans alone prove little (Germany's takes most rows of digits), so a number without a country code also needs the
look of a phone number, or a word such as "call" to its left.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

import phonenumbers
import regex
from phonenumbers import PhoneMetadata

from safety.identifier import Identifier, has_word_before
from safety.normalise import Normalised

REGIONS = re.findall(
    r"\w+",
    "US GB DE FR ES IT NL BE CH AT SE NO DK FI IS PT PL HU IE CY BR MX IN ZA AU NZ JP CN",
)
KINDS = ("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "personal_number", "voip", "uan")

SEPARATOR = r"(?:[./]|[ ]?-[ ]?|[ ]?\)[ .\-]?|[ ]?\(|\r?\n[ ]|[ ]?\r?\n|[ ])?+"
# "phone=", "tel/", "wa.me/": what stands before a number that is the value of a field or the end of a link.
KEY = (
    r"(?i:(?<![^\W_])(?:(?:phone|telephone|tel|mobile|mob|cell|whatsapp|fax|sms|telefono|telefon|movil|handy|mobil)"
    r"(?:[_\-]?(?:number|num|no|nr))?|wa\.me)[=/.\-])"
)
# Rows of digits that do not continue a word, an amount, a decimal, a time, a path or a handle.
CANDIDATE = regex.compile(
    rf"(?a)(?=[\d+(])(?:(?<![\w@#&=%$€£/]|\d[.:,]|[$€£#@&] )|(?<={KEY}))(?:\+ ?)?\(?\d(?:{SEPARATOR}\d){{6,}}+"
)
AFTER_KEY = regex.compile(rf"(?<={KEY})")
EXTENSION = regex.compile(r"(?a)[ ,;]{0,2}(?:x|ext\.?|extension|#|anexo|durchwahl)[ .:]{0,2}\d{1,6}(?!\w)")
GLUED = re.compile(r"[0-9A-Za-z]")
TIME = re.compile(r":\d\d")
TIME_OR_SHARE = re.compile(r"[0-9A-Za-z%]|[:,]\d")  # "9:30", "10am", "50%": not the end of a number
BREAK = re.compile(r"\r?\n | ?\r?\n")
GROUP = re.compile(r"\d+")
MAX_DIGITS, MAX_GROUPS = 17, 9

WORDS = (
    "phone|phones|telephone|tel|mobile|mob|cell|cellphone|landline|desk|fax|call|calls|called|calling|dial|text|texting|"
    "message|messages|sms|whatsapp|signal|ring|hotline|helpline|contact|reach|answering|answer|ph|my number|her number|"
    "his number|phone number|registered|teléfono|telefono|tfno|móvil|movil|celular|llama|llame|llamad|llámame|llamar|"
    "llámanos|mi número|telefon|telefonnummer|handy|handynummer|mobil|anruf|anrufen|ruf|rufe|rufen|rufnummer|"
    "meine nummer|téléphone|portable|appelez|appelle|mon numéro|"
    "电话|致电|手机|联系|電話|携帯|連絡|هاتف|جوال|اتصل"
)
NOT_A_PHONE = regex.compile(
    r"(?:1[5-9]|20)\d\d ?[-/] ?(?:1[5-9]|20)?\d\d"  # years
    r"|(?:19|20)\d\d[-/. ][01]?\d[-/. ][0-3]?\d(?:\D.*)?"  # 2021-03-01 07
    r"|[0-3]?\d[-/. ][0-3]?\d[-/. ](?:19|20)\d\d(?:\D.*)?"  # 01.03.2021 10
    r"|[0-3]?\d[-/.][0-3]?\d[-/.]\d\d"
    r"|\d+\.\d+"  # a decimal
    r"|(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"  # an IPv4 address
)
# How phone numbers look without a country code: (510) 555-0130, 510.555.0130, 020 7946 0958, 01 84 17 61 18,
# 600 123 456.
LOOKS = regex.compile(
    r"\(?[2-9]\d\d(?:\) ?| - |[-. ])\d{3}(?: - |[-. ])\d{4}"
    r"|\(0?\d{2,5}\)[ -]?\d{3,5}[ -]?\d{3,6}"
    r"|0\d{2,4}[ /-]\d{3,4}[ -]?\d{3,5}"
    r"|0\d(?:[ .-]\d\d){4}"
    r"|0\d{2,4}[ /]\d{2,3}(?: ?\d\d){2,3}"
    r"|0[1-9]\d{8,9}"
    r"|1[3-9]\d{9}"  # a Chinese mobile
    r"|[679]\d\d([ -])\d{3}\1\d{3}"
)


@lru_cache(maxsize=1)
def plans() -> dict[str, regex.Pattern[str]]:
    """The national numbers that exist in each region, as dialled inside it."""
    dialled = {}
    for region in REGIONS:
        plan = PhoneMetadata.metadata_for_region(region)
        assert plan is not None
        kinds = {desc.national_number_pattern for kind in KINDS if (desc := getattr(plan, kind))} - {None}
        rules = [shape.national_prefix_formatting_rule for shape in plan.number_format]
        trunk = plan.national_prefix or ""
        optional = "" if trunk == "0" and all(rule and "0" in rule for rule in rules) else "?"
        dialled[region] = regex.compile(rf"(?:{trunk}){optional}(?:{'|'.join(sorted(kinds))})")
    return dialled


def phones(text: Normalised) -> Iterator[Identifier]:
    """Phone numbers of 7 to 15 digits with their extensions; no dates, years, amounts or decimals."""
    for run in CANDIDATE.finditer(text.text):
        groups = [match.span() for match in GROUP.finditer(text.text, run.start(), run.end())]
        first = 0
        while first < len(groups):
            start = run.start() if first == 0 else _with_sign(text.text, groups[first][0])
            found = _phone_at(text, start, groups[first : first + MAX_GROUPS])
            if found is None:
                first += 1
                continue
            identifier, used = found
            whole = _to_end(text, identifier, groups[first : first + MAX_DIGITS + 1], used)
            first += used
            while first < len(groups) and groups[first][0] < whole.end:
                first += 1
            yield whole


def _to_end(text: Normalised, found: Identifier, groups: list[tuple[int, int]], used: int) -> Identifier:
    """The number with the rest of its row, on its line: a tail of it would tell the number. Where the rest is a number
    of its own, a time or a share, or the row is too long to be one number, what was found."""
    line_end = text.text.find("\n", found.end)
    groups = [group for group in groups if line_end < 0 or group[0] < line_end]
    rest = groups[used:]
    if not rest or found.end != groups[used - 1][1] or sum(end - start for start, end in groups) > MAX_DIGITS:
        return found
    end = rest[-1][1]
    if TIME_OR_SHARE.match(text.text, end):
        return found
    if _phone_at(text, _with_sign(text.text, rest[0][0]), rest[:MAX_GROUPS]):
        return found
    return Identifier(found.label, found.start, end, found.rule, found.score)


def _with_sign(text: str, start: int) -> int:
    """The start of a number with the "+" or "(" that stands before its first digit."""
    while text[start - 1] in "+(":
        start -= 1
    return start


def _phone_at(text: Normalised, start: int, groups: list[tuple[int, int]]) -> tuple[Identifier, int] | None:
    """The longest phone number at `start` that ends with a group, and how many groups it takes."""
    if start and start == groups[0][0] and text.text[start - 1] in ".-/)" and not AFTER_KEY.match(text.text, start):
        return None  # the middle of a longer row
    named: bool | None = None
    for count in range(len(groups), 0, -1):
        end = groups[count - 1][1]
        if GLUED.match(text.text, end) and not EXTENSION.match(text.lower, end):
            continue
        if end - groups[count - 1][0] <= 2 and TIME.match(text.text, end):
            continue
        written = text.text[start:end]
        digits = "".join(filter(str.isdigit, written))
        if not 7 <= len(digits) <= MAX_DIGITS:
            continue
        if "\n" in written:
            if rule := _rule_over_lines(text.lower, start, written, digits):
                return Identifier("phone", start, end, rule, 0.8), count
            continue
        rule = _rule(written, digits)
        if rule is None and not NOT_A_PHONE.fullmatch(written):
            if named is None:
                named = has_word_before(text.lower, start, WORDS)
            if named and _exists(digits):
                rule = "named"
        if rule is not None:
            extension = EXTENSION.match(text.lower, end)
            return Identifier("phone", start, extension.end() if extension else end, rule, 0.8), count
    return None


def _rule(written: str, digits: str) -> str | None:
    """How a number proves itself without a word to its left, or None."""
    if written.startswith(("+", "00", "(+", "(00")):
        return "international" if _is_international(digits.removeprefix("00")) else None
    if not LOOKS.fullmatch(written):
        return None
    if len(digits) == 10 and digits[0] in "23456789":
        return "look"  # the North American form is enough: invented and freed area codes are numbers too
    regions = ("CN",) if digits[0] == "1" else REGIONS
    return "look" if _exists(digits, regions) else None


def _rule_over_lines(lower: str, start: int, written: str, digits: str) -> str | None:
    """A number broken by the end of a line, whose first part is none: two lines of numbers are a list or a table."""
    above, *below = BREAK.split(written)
    if len(below) != 1 or _rule(above, "".join(filter(str.isdigit, above))):
        return None
    rule = _rule(f"{above} {below[0]}", digits)
    return rule if rule == "international" or has_word_before(lower, start, WORDS) else None


def _exists(digits: str, regions: Iterable[str] = REGIONS) -> bool:
    return any(plans()[region].fullmatch(digits) for region in regions)


def _is_international(digits: str) -> bool:
    try:
        number = phonenumbers.parse(f"+{digits}", None)
    except phonenumbers.NumberParseException:
        return False
    return phonenumbers.is_possible_number(number)
