"""Personal data: what is replaced, what is left alone. Numbered cases are rows of reference/safety.md, section 4."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safety.normalise import normalise
from safety.numbers import IBAN_LENGTHS, passes_luhn
from safety.pii import Pii, identify
from safety.screen import Screen
from safety.verdict import Action, Surface

SCREEN = Screen([Pii()])

REPLACED = [
    # e-mail
    ("12", "Chris Tester - christester@example.com", "Chris Tester - [EMAIL]"),
    ("14", "contact@example.com support@example.org admin@example.net", "[EMAIL] [EMAIL] [EMAIL]"),
    ("brackets", "write to jane [at] example [dot] com.", "write to [EMAIL]."),
    ("brackets", "jane(at)example.com", "[EMAIL]"),
    ("words", "it is jane dot doe at mail dot example dot co dot uk, ok", "it is [EMAIL], ok"),
    ("words es", "escribe a jane arroba example punto com", "escribe a [EMAIL]"),
    ("words de", "jane ät example punkt de", "[EMAIL]"),
    ("zero width", "mail jane\u200b@exa\u200bmple.com now", "mail [EMAIL] now"),
    ("full width", "ｊａｎｅ＠ｅｘａｍｐｌｅ．ｃｏｍ", "[EMAIL]"),
    ("unspaced script", "联系jane@example.com获取", "联系[EMAIL]获取"),
    ("idn", "josé@bücher.example", "[EMAIL]"),
    ("end of sentence", "Ask jane.doe+news@mail.example.co.uk.", "Ask [EMAIL]."),
    ("spaces", "jane @ gmail.com or joe.doe@ hotmail.co.uk or ann @web.de", "[EMAIL] or [EMAIL] or [EMAIL]"),
    ("spaces after a word", "E-mail: jane.doe @ mail.example.com", "E-mail: [EMAIL]"),
    ("at a provider", "ask @jane.doe@gmail.com", "ask [EMAIL]"),
    # phone
    (
        "8",
        "Call me at 510-555-0130 if it's before 9:30, or on +44 (20) 7946 0958 after 10am.",
        "Call me at [PHONE] if it's before 9:30, or on [PHONE] after 10am.",
    ),
    ("no space", "tel:+15105550130", "tel:[PHONE]"),
    ("extension", "ring 510-555-0130 ext. 12 or 510-555-0131x45", "ring [PHONE] or [PHONE]"),
    ("spain", "Llámame al 612 345 678", "Llámame al [PHONE]"),
    ("germany", "Tel. 030 901820", "Tel. [PHONE]"),
    ("france", "01 84 17 61 18", "[PHONE]"),
    ("zero zero", "0044 20 7946 0958", "[PHONE]"),
    ("label above", "Phone:\n9472 7916", "Phone:\n[PHONE]"),
    ("china", "请致电13800138000谢谢", "请致电[PHONE]谢谢"),
    ("japan", "電話090-1234-5678まで", "電話[PHONE]まで"),
    ("unspaced script", "号码+8613800138000。", "号码[PHONE]。"),
    ("four groups no IPv4 address", "whatsapp: 600.12.34.56", "whatsapp: [PHONE]"),
    ("rest of the row", "whatsapp 600 123 456 12 or 510-555-0130-99", "whatsapp [PHONE] or [PHONE]"),
    ("single digits", "tel: 1 5 1 0 5 5 5 0 1 3 0", "tel: [PHONE]"),
    ("a time after it", "call 510-555-0130 9:30", "call [PHONE] 9:30"),
    ("over lines", "call +1 (510) 555\n0130", "call [PHONE]"),
    ("over lines", "call 510 555\n0130 now", "call [PHONE] now"),
    ("over lines", "call 510 555 \r\n0130", "call [PHONE]"),
    ("over lines", "call 510 555\n 0130", "call [PHONE]"),
    ("a list", "call 510-555-0130\n510-555-0131\n2024", "call [PHONE]\n[PHONE]\n2024"),
    ("a line after it", "call +49 30 901820\n2024 was good", "call [PHONE]\n2024 was good"),
    ("field", "?phone=5105550130&tel=+15105550131", "?phone=[PHONE]&tel=[PHONE]"),
    ("field", "phone_number=5105550130", "phone_number=[PHONE]"),
    ("link", "tel/5105550130 https://wa.me/15105550130", "tel/[PHONE] https://wa.me/[PHONE]"),
    ("arabic digits", "اتصل +٤٤ ٢٠ ٧٩٤٦ ٠٩٥٨", "اتصل [PHONE]"),
    # card
    ("6", "My credit card account is 1234-5678-1234-5678.", "My credit card account is [CARD]."),
    ("2 series", "my card 2623322164608847", "my card [CARD]"),
    ("19 digits", "4131034282458809939", "[CARD]"),
    ("amex", "3782 822463 10005", "[CARD]"),
    ("maestro", "630427373398", "[CARD]"),
    ("arabic digits", "٤١١١ ١١١١ ١١١١ ١١١١", "[CARD]"),
    ("spaced", "it is 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 ok", "it is [CARD] ok"),
    ("pairs", "41 11 11 11 11 11 11 11", "[CARD]"),
    ("over lines", "4111 1111\n1111 1111", "[CARD]"),
    ("commas", "4111,1111,1111,1111", "[CARD]"),
    ("bars", "a|4111|1111|1111|1111|b", "a|[CARD]|b"),
    ("glued", "card4111111111111111", "card[CARD]"),
    # iban
    ("gb", "IBAN GB82 WEST 1234 5698 7654 32, thanks", "IBAN [IBAN], thanks"),
    ("lower case", "gb42nawi04454264788619", "[IBAN]"),
    ("de", "DE89370400440532013000", "[IBAN]"),
    ("es", "ES91-2100-0418-4502-0005-1332", "[IBAN]"),
    ("country apart", "DE 89 3704 0044 0532 0130 00", "[IBAN]"),
    ("country apart", "GB 82 WEST 1234 5698 7654 32", "[IBAN]"),
    ("two spaces", "to GB82  WEST  1234  5698  7654  32 now", "to [IBAN] now"),
    ("slashes", "DE89/3704/0044/0532/0130/00", "[IBAN]"),
    # ip
    (
        "3",
        "03/22 08:51:06 INFO   :...read_physical_netif: index #1, interface TR1 has address 9.22.22.222, ifidx 1",
        "03/22 08:51:06 INFO   :...read_physical_netif: index #1, interface TR1 has address [IP], ifidx 1",
    ),
    ("21", "A099::09C0:876A:130B", "[IP]"),
    ("full v6", "from 6e40:4041:c617:e898:c11:40d2:c669:2eb4.", "from [IP]."),
    ("port", "http://203.0.113.7:8080/x", "http://[IP]:8080/x"),
    # ids
    ("ssn", "SSN 460-89-9847", "SSN [ID]"),
    ("ssn bare", "my social security number is 460899847", "my social security number is [ID]"),
    ("ssn never issued", "SSN: 000-12-3456", "SSN: [ID]"),
    ("ssn dots", "SSN: 123.45.6789", "SSN: [ID]"),
    ("nino", "NI number QQ 12 34 56 C", "NI number [ID]"),
    ("nino", "ab123456c", "[ID]"),
    ("nhs", "NHS number 943 476 5919", "NHS number [ID]"),
    ("steuer-id", "Steuer-ID 86 095 742 719", "Steuer-ID [ID]"),
    ("dni", "DNI 12345678Z", "DNI [ID]"),
    ("dni dots", "12.345.678-Z", "[ID]"),
    ("nie", "NIE X1234567L", "NIE [ID]"),
]

LEFT_ALONE = [
    ("1", "BIOMARKERS IN CANCER: AN INTRODUCTORY GUIDE FOR ADVOCATES. H1, B43 and D3 are duplicate policy codes."),
    ("2", "6033391"),
    ("4", "return os.system, (cmd,) # rpc.py on zeus.mtia.local:65432"),
    ("5", "The author is Alan Tester. Growing up, he wrote an early version of Fortran in 9th grade. Later, he moved."),
    ("9", "SOPHY SANTINO / Sophy Santino / sophy santino"),
    ("10", "what is letter 96c"),
    ("11", "1607635102.00 -0.96"),
    ("16", "see https://acme.example.net/wiki/spaces/ENG/pages/4010232137/Runbook"),
    ("17", "We run EKS on C4 instances and keep logs in S3."),
    ("19", "event at 1748503543012 ms"),
    ("21", "2001::25de::cade"),
    ("22", "use resolver 8.8.8.8 please"),
    ("22", "thanks <@184405311681986560> for the tip"),
    ("24", "SHE WANTED TO KNOW IF SHE COULD GET A CALL BACK ABOUT CHARGES FOR RECYCLING"),
    ("25", "Time 2021-03-01 07:16:59.605000"),
    ("handle", "thanks @ana.example and @ana@mastodon.example"),
    ("spaces without a word", "meeting jane @ example.com tonight"),
    ("site", "follow us @ yahoo.com"),
    ("other fields", "id=5105550130 item/5105550130 mytel=5105550130"),
    ("amounts with commas", "600,123,456,789 and 4,111,111,111,111,111 and 4111,1111 1111,1111"),
    ("numbers in lines", "345 678\n1234\n600 123\n456"),
    ("ssn dots without the word", "release 123.45.6789"),
    ("at, is", "at 20 people went to see it, is 26 more than before; no 15 as well"),
    ("prose that passes mod 97", "at 10 ten dogs came at the"),
    ("years", "open 2010 - 2012, again 2014-2016, born 1921-2010"),
    ("dates", "on 4/22/2014, 2024-05-06 and 06.05.2024 at 10:30"),
    ("dates after a word", "call him in 2010-2012 or on 06.05.2024, text by 2024-05-06 10:30"),
    ("amounts", "$1234567890, 1.234.567 €, 12 345 678 people, 3.14159265358979"),
    ("version", "upgrade to version 1.2.3.4 or v10.0.1.2"),
    ("loopback", "127.0.0.1 0.0.0.0 255.255.255.0 ::1"),
    ("scope", "std::vector and dead::beef"),
    ("score", "marks 5 4 5 5 3 4 5 5 4 5 5 5 4"),
    ("picture", "icon@2x.png"),
    ("site", "find us at example dot com"),
    ("nhs without the word", "order 9434765919"),
    ("dni letter wrong", "DNI 12345678A"),
    ("steuer-id digit wrong", "86095742718"),
    ("iban digit wrong", "GB83 WEST 1234 5698 7654 32"),
    ("card fails luhn", "4111 1111 1111 1112"),
    ("fraction", "lat 52.4111111111111111"),
    ("spanish and", "12345678 y más"),
    ("citation", "As posted [1], and again [2][3]."),
    ("nan", "NaN -inf 1e400 \x00 \ud800"),
]


@pytest.mark.parametrize(("case", "text", "safe"), REPLACED)
@pytest.mark.parametrize("surface", ["question", "post", "answer"])
def test_replaced_on_every_surface(case: str, text: str, safe: str, surface: Surface) -> None:
    verdict = SCREEN.check(text, surface)
    assert (verdict.action, verdict.text) == (Action.REWRITE, safe)


@pytest.mark.parametrize(("case", "text"), LEFT_ALONE)
def test_left_alone(case: str, text: str) -> None:
    verdict = SCREEN.check(text, "post")
    assert (verdict.action, verdict.text, verdict.findings) == (Action.ALLOW, text, ())


@pytest.mark.parametrize(("case", "text", "safe"), REPLACED)
def test_what_was_rewritten_needs_no_second_rewrite(case: str, text: str, safe: str) -> None:
    assert SCREEN.check(safe, "post").action is Action.ALLOW


def test_findings_point_at_the_raw_text_and_never_hold_it() -> None:
    text = "mail ja\u200bne@example.com or 510-555-0130"
    verdict = SCREEN.check(text, "post")
    assert [(found.label, text[found.start : found.end]) for found in verdict.findings] == [
        ("email", "ja\u200bne@example.com"),
        ("phone", "510-555-0130"),
    ]
    assert "example" not in repr(verdict.findings)


def test_an_unproven_card_says_so() -> None:
    (finding,) = SCREEN.check("My credit card account is 1234-5678-1234-5678.", "post").findings
    assert (finding.label, finding.rule, finding.score) == ("card", "unchecked", 0.5)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("x@460-89-9847.com", "[EMAIL]"),  # an id inside an address
        ("mail 4111-1111-1111-1111@example.com", "mail [EMAIL]"),
        ("call 510-555-0130@example.com", "call [EMAIL]"),
        ("tel 4111 1111 1111 1111 20 7946 0958", "tel [CARD] [PHONE]"),
    ],
)
def test_of_overlapping_identifiers_no_tail_is_left(text: str, safe: str) -> None:
    verdict = SCREEN.check(text, "post")
    assert verdict.text == safe
    assert len(verdict.findings) == safe.count("[")


AROUND = st.text(alphabet=st.sampled_from(" abcXYZ,;\n\u200bé中()\"'"), max_size=20)


def card(seed: int) -> str:
    body = "4" + "".join(random.Random(seed).choices("0123456789", k=14))
    return next(body + digit for digit in "0123456789" if passes_luhn(body + digit))


def iban(seed: int) -> str:
    chosen = random.Random(seed)
    country = chosen.choice(["de", "gb", "es", "fr", "nl"])
    account = "".join(chosen.choices("0123456789", k=IBAN_LENGTHS[country] - 4))
    check = 98 - int("".join(str(int(char, 36)) for char in f"{account}{country}00")) % 97
    return f"{country.upper()}{check:02}{account}"


@given(AROUND, AROUND, st.integers(0, 10_000), st.sampled_from(["", " ", "-", " - "]))
def test_a_planted_card_never_survives(before: str, after: str, seed: int, between: str) -> None:
    number = card(seed)
    written = between.join(number[start : start + 4] for start in range(0, 16, 4))
    safe = SCREEN.check(f"{before} {written} {after}", "post").text
    assert number[-8:] not in safe.replace(between, "") and "[CARD]" in safe


@given(AROUND, AROUND, st.integers(0, 10_000), st.sampled_from(["", " "]))
def test_a_planted_iban_never_survives(before: str, after: str, seed: int, between: str) -> None:
    number = iban(seed)
    written = between.join(number[start : start + 4] for start in range(0, len(number), 4))
    safe = SCREEN.check(f"{before}, {written}, {after}", "post").text
    assert "[IBAN]" in safe and number[4:] not in safe.replace(" ", "")


@given(AROUND, AROUND, st.from_regex(r"\A[a-z][a-z0-9._+]{0,20}[a-z0-9]@[a-z]{1,12}\.(?:com|org|co\.uk)\Z"))
def test_a_planted_address_never_survives(before: str, after: str, address: str) -> None:
    safe = SCREEN.check(f"{before} {address} {after}", "post").text
    assert address not in safe and "[EMAIL]" in safe


@given(st.text(alphabet=st.characters(), max_size=300))
def test_any_text_is_answered_and_spans_stay_inside(text: str) -> None:
    end = 0
    for found in identify(normalise(text)):
        assert end <= found.start < found.end
        end = found.end
    assert SCREEN.check(text, "post").reason != "safety_unavailable"


@pytest.mark.parametrize(
    "row",
    [
        "a",
        "a@",
        "1 ",
        "a at ",
        "at10 ",
        "1111 ",
        "a:",
        "@",
        "a(at)",
        "4",
        "1.1.",
        "call 123 456 789 ",
        "+44 20 7946 0958 ",
    ],
)
def test_long_rows_are_answered(row: str) -> None:
    """Seconds when linear, hours when not: the patterns are bounded or possessive."""
    assert SCREEN.check(row * (20_000 // len(row)), "post").reason != "safety_unavailable"


def test_threads_share_one_screen() -> None:
    texts = [text for _, text, _ in REPLACED] * 4
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: SCREEN.check(text, "post").text, texts))
    assert together == [SCREEN.check(text, "post").text for text in texts]
