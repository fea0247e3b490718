"""National identity numbers of the US, the UK, Germany and Spain."""

import re
from collections.abc import Iterator

import regex
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.gb import nhs

from safety.identifier import Identifier, has_word_before
from safety.normalise import Normalised

# (?a): a letter that ends a number is one of a to z; Chinese or Japanese may stand right beside it.
SSN = regex.compile(r"(?a)(?<![\w\-]|\d[.,/])\d{3}([- .]?)\d\d\1\d{4}(?![\w\-]|[.,/]\d)")
NEVER_ISSUED = re.compile(r"000|666|9|...00|.....0000")
SSN_WORDS = r"ssn|ssns|ssno|social security|social security number|social|seguro social"
# Prefixes never given out are left out, save QQ, the one that official examples use; the suffix is A to D.
NINO = regex.compile(
    r"(?a)(?<!\w)(?!bg|gb|kn|nk|nt|tn|zz)(?:qq|[a-ceghj-prtw-z][a-ceghj-nprtw-z])(?:[ \-.]?\d\d){3}[ \-.]?[a-d](?!\w)"
)
NHS = regex.compile(r"(?a)(?<![\w\-])\d{3}([- ]?)\d{3}\1\d{4}(?![\w\-])")
NHS_WORDS = r"nhs|nhs number|nhs no"
STEUER_ID = regex.compile(r"(?a)(?<![\w\-/]|\d[.,])[1-9]\d(?:([ ./\-]?)\d{3}){3}(?![\w\-/]|[.,]\d)")
# A letter that stands apart is a capital: "12345678 y ..." only goes on in Spanish.
DNI = regex.compile(r"(?a)(?<![\w\-/]|\d[.,])\d\d\.?\d{3}\.?\d{3}(?:[ \-]?[A-Z]|[a-z])(?!\w)")
NIE = regex.compile(r"(?a)(?<![\w\-/])[XYZxyz][ \-]?\d{7}(?:[ \-]?[A-Z]|[a-z])(?!\w)")
PLAIN = re.compile(r"[^0-9A-Za-z]")


def national_ids(text: Normalised) -> Iterator[Identifier]:
    """US SSN, UK NINO and NHS (beside the word), German Steuer-ID, Spanish DNI and NIE, by form and check digit."""
    lower = text.lower
    for match in SSN.finditer(lower):
        issued = NEVER_ISSUED.match(_plain(match[0])) is None
        named = has_word_before(lower, match.start(), SSN_WORDS)
        if named or (issued and match[1] == "-"):
            yield Identifier("id", match.start(), match.end(), "us_ssn", 1.0 if issued else 0.5)
    for match in NINO.finditer(lower):
        yield Identifier("id", match.start(), match.end(), "uk_nino")
    for match in NHS.finditer(lower):
        if nhs.is_valid(_plain(match[0])) and has_word_before(lower, match.start(), NHS_WORDS):
            yield Identifier("id", match.start(), match.end(), "uk_nhs")
    for match in STEUER_ID.finditer(lower):
        if idnr.is_valid(_plain(match[0])):
            yield Identifier("id", match.start(), match.end(), "de_steuer_id")
    for match in DNI.finditer(text.text):
        if dni.is_valid(_plain(match[0])):
            yield Identifier("id", match.start(), match.end(), "es_dni")
    for match in NIE.finditer(text.text):
        if nie.is_valid(_plain(match[0])):
            yield Identifier("id", match.start(), match.end(), "es_nie")


def _plain(written: str) -> str:
    return PLAIN.sub("", written)
