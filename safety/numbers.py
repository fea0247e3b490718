"""Payment cards, bank accounts and network addresses: identifiers that carry their own proof."""

import ipaddress
import re
from collections.abc import Iterator
from itertools import pairwise

import regex

from safety.identifier import Identifier, has_word_before
from safety.normalise import Normalised

SEPARATORS = r"[\s.\-_/\u00b7\u2022]"
# A run of digit groups, possessive: a run is read once.
DIGIT_RUN = regex.compile(rf"(?<!\d)\d(?:(?:[,|]|{SEPARATORS}{{0,3}}+)\d){{11,}}+")
GROUP = re.compile(r"\d+")

CARD_WORDS = "cards?|cc|visa|mastercard|amex|tarjetas?|karte|karten|kreditkarte|kartennummer|carte|pan"
CARD_WORD = re.compile(CARD_WORDS)
# Issuer ranges with their lengths: Visa, Mastercard (5 and 2 series), Amex, Diners, Discover, JCB, UnionPay, Mir,
# Maestro.
ISSUED = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"
    r"|5[1-5]\d{14}"
    r"|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"
    r"|3[47]\d{13}"
    r"|3(?:0[0-5]|[689]\d)\d{11,16}"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12,15}"
    r"|35(?:2[89]|[3-8]\d)\d{12,15}"
    r"|(?:2131|1800)\d{11}"
    r"|62\d{14,17}"
    r"|220[0-4]\d{12,15}"
    r"|(?:50|5[6-9]|6\d)\d{10,17}"
)
PRINTED = {(4, 6, 5), (4, 6, 4), (4, 4, 5), (6, 13), (4, 4, 4, 4, 3)}


def cards(text: Normalised) -> Iterator[Identifier]:
    """Card numbers of 12 to 19 digits: an issuer's range and the Luhn digit, or card-shaped after the word "card"."""
    names_card = CARD_WORD.search(text.lower) is not None
    for run in DIGIT_RUN.finditer(text.text):
        groups = [match.span() for match in GROUP.finditer(text.text, run.start(), run.end())]
        first = 0
        while first < len(groups):
            start = groups[first][0]
            named = names_card and has_word_before(text.lower, start, CARD_WORDS)
            found = _card_at(text.text, groups[first : first + 19], named)
            if found is not None:
                count, rule, score = found
                yield Identifier("card", start, groups[first + count - 1][1], rule, score)
            first += 1 if found is None else found[0]


def _card_at(text: str, groups: list[tuple[int, int]], named: bool) -> tuple[int, str, float] | None:
    """How many of the groups make a card, the most that do; by which rule, how surely."""
    lengths = tuple(end - start for start, end in groups)
    for count in range(len(groups), 0, -1):
        if not 12 <= sum(lengths[:count]) <= 19:
            continue
        printed = (
            _is_printed_so(lengths[:count])
            and not (count == 1 and _is_fraction(text, groups[0][0]))
            and not _is_list(text, groups[:count])
        )
        if not (printed or named):
            continue
        digits = "".join(text[start:end] for start, end in groups[:count])
        if ISSUED.fullmatch(digits) and passes_luhn(digits):
            return count, "luhn", 1.0
        if named and printed and len(digits) in (15, 16):
            return count, "unchecked", 0.5
    return None


def _is_printed_so(lengths: tuple[int, ...]) -> bool:
    """Whether people write a card in groups of these lengths: all at once, in equal groups, or as on the card."""
    if len(lengths) == 1 or lengths in PRINTED:
        return True
    if lengths[0] == 1 and sum(lengths) not in (15, 16, 19):
        return False  # a row of single digits is mostly marks or scores
    return len(set(lengths[:-1])) == 1 and lengths[-1] <= lengths[0]


def _is_list(text: str, groups: list[tuple[int, int]]) -> bool:
    """Whether commas or bars part the groups as in amounts or columns: not all alike, or not four digits each."""
    between = {text[end:start] for (_, end), (start, _) in pairwise(groups)}
    if between.isdisjoint(",|"):
        return False
    return len(between) > 1 or any(end - start != 4 for start, end in groups)


def _is_fraction(text: str, start: int) -> bool:
    return start >= 2 and text[start - 1] == "." and text[start - 2].isdigit()


def passes_luhn(digits: str) -> bool:
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[-1::-2]))) % 10 == 0


IBAN_LENGTHS = {
    country: int(length)
    for country, length in re.findall(
        r"([a-z]{2})(\d\d)",
        "ad24 ae23 al28 at20 az28 ba20 be16 bg22 bh22 bi27 br29 by28 ch21 cr22 cy28 cz24 de22 dj27 dk18 do28 ee20 "
        "eg29 es24 fi18 fk18 fo18 fr27 gb22 ge22 gi23 gl18 gr27 gt28 hn28 hr21 hu28 ie22 il23 iq23 is26 it27 jo30 "
        "kw30 kz20 lb28 lc32 li21 lt20 lu20 lv21 ly25 mc27 md24 me22 mk19 mn20 mr27 mt31 mu30 ni28 nl18 no15 om23 "
        "pk24 pl28 ps29 pt25 qa29 ro24 rs22 ru33 sa24 sc31 sd18 se24 si19 sk24 sm27 so23 st25 sv28 tl23 tn24 tr26 "
        "ua29 va22 vg24 xk20 ye30",
    )
}
IBAN_BETWEEN = r"(?: ?[\-/] ?|\s{1,2}|\.)?"
IBAN_HEAD = regex.compile(rf"(?<![a-z0-9])(?:{'|'.join(IBAN_LENGTHS)})[ .\-/]?\d{{2}}")
IBAN_CHAR = regex.compile(rf"{IBAN_BETWEEN}([a-z0-9])")
IBAN_DIGITS = 10  # the fewest in an account that is not written together: "at 20 people went to ..." is prose


def ibans(text: Normalised) -> Iterator[Identifier]:
    """Bank accounts by country, length and the mod 97 check, written together or in groups."""
    for head in IBAN_HEAD.finditer(text.lower):
        wanted = IBAN_LENGTHS[head[0][:2]]
        account, end = head[0][:2] + head[0][-2:], head.end()
        while len(account) < wanted and (char := IBAN_CHAR.match(text.lower, end)):
            account, end = account + char[1], char.end()
        if len(account) != wanted or _continues(text.lower, end):
            continue
        if len(head[0]) > 4 and sum(map(str.isdigit, account)) < IBAN_DIGITS:
            continue
        if passes_mod97(account):
            yield Identifier("iban", head.start(), end, "mod97")


def _continues(lower: str, end: int) -> bool:
    return end < len(lower) and lower[end].isascii() and lower[end].isalnum()


def passes_mod97(account: str) -> bool:
    return int("".join(str(int(char, 36)) for char in account[4:] + account[:4])) % 97 == 1


OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
IPV4 = regex.compile(rf"(?a)(?<![\w.])(?:{OCTET}\.){{3}}{OCTET}(?!\.?\w)")
IPV6 = regex.compile(r"(?a)(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}(?:[0-9a-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])")
VERSION_WORDS = (
    r"(?:v|ver|version|versions|versión|release|build|firmware|update|section|chapter|kapitel|abschnitt)\W{0,3}$"
)
# Well-known resolvers, and addresses that name no one: loopback, unspecified, broadcast, netmasks.
PUBLIC = frozenset(
    re.findall(
        r"\S+",
        "8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 1.1.1.2 1.0.0.2 1.1.1.3 1.0.0.3 9.9.9.9 149.112.112.112 9.9.9.10 "
        "208.67.222.222 208.67.220.220 94.140.14.14 94.140.15.15 76.76.2.0 76.76.10.0 4.2.2.1 4.2.2.2 64.6.64.6 "
        "64.6.65.6 2001:4860:4860::8888 2001:4860:4860::8844 2606:4700:4700::1111 2606:4700:4700::1001 2620:fe::fe "
        "2620:fe::9",
    )
)


def addresses(text: Normalised) -> Iterator[Identifier]:
    """IPv4 and IPv6 addresses, save public resolvers, loopback, netmasks and version numbers."""
    for match in IPV4.finditer(text.text):
        if not _is_public(match[0]) and not has_word_before(text.lower, match.start(), VERSION_WORDS):
            yield Identifier("ip", match.start(), match.end(), "ipv4")
    for match in IPV6.finditer(text.lower):
        hexes = match[0].replace(":", "")
        if len(hexes) >= 5 and any(map(str.isdigit, hexes)) and _is_ipv6(match[0]) and not _is_public(match[0]):
            yield Identifier("ip", match.start(), match.end(), "ipv6")


def _is_ipv6(written: str) -> bool:
    try:
        ipaddress.IPv6Address(written)
    except ValueError:
        return False
    return True


def _is_public(written: str) -> bool:
    if written in PUBLIC or written.startswith(("0.", "127.", "255.")):
        return True
    try:
        address = ipaddress.ip_address(written)
    except ValueError:  # a zero in front of an octet: no address a machine would take
        return False
    return address.is_loopback or address.is_unspecified
