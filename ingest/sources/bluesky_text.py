"""What a Bluesky post says, as one text: its own words, links in full, and what its pictures show.

The form, line by line: the post's text; `[image: ...]`, `[video: ...]` for each alt text; the hashtags that the post
carries outside its text. The title and description of a link card are the linked site's words and are left out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard
from urllib.parse import urlsplit

MAX_FACETS = 200
MAX_MEDIA = 20
MAX_TAGS = 8
MAX_URI = 2048

_LINK = "app.bsky.richtext.facet#link"
_BREAKS = re.compile(r"[\s\x00-\x20\x7f<>\"`]")
_CUT = re.compile(r"(?:\.\.\.|\u2026)$")
_PREFIX = re.compile(r"^(?:https?://)?(?:www\.)?", re.IGNORECASE)
_SPACES = re.compile(r"\s+")

Range = tuple[int, int, str]  # UTF-8 bytes, end exclusive; the full address


def full_text(record: Mapping[str, Any], text: str) -> str:
    lines = [_with_full_links(text, record), *_alt_lines(record.get("embed")), _outer_tags(record.get("tags"))]
    return "\n".join(line for line in lines if line)


def _with_full_links(text: str, record: Mapping[str, Any]) -> str:
    """A link is often shown cut ("example.org/a/lo..."): it is replaced by its address. Other words stay as they are.

    Ranges that overlap an earlier one, leave the text or split a code point are dropped, and the text stays.
    """
    facets = record.get("facets")
    ranges = _facet_links(facets) if facets else _entity_links(record.get("entities"), text)
    content = text.encode()
    pieces: list[str] = []
    done = covered = 0
    for start, end, uri in sorted(ranges, key=lambda found: found[0]):
        if not covered <= start < end <= len(content) or _splits(content, start) or _splits(content, end):
            continue
        covered = end
        if _is_cut_form(content[start:end].decode(), uri):
            before, after = content[done:start].decode(), content[end : end + 4].decode("utf-8", "ignore")
            pieces += [before, " " * before[-1:].isalnum(), uri, " " * after[:1].isalnum()]
            done = end
    return "".join([*pieces, content[done:].decode()])


def _splits(content: bytes, at: int) -> bool:
    return at < len(content) and content[at] & 0xC0 == 0x80


def _is_cut_form(shown: str, uri: str) -> bool:
    shown, full = _PREFIX.sub("", _CUT.sub("", shown)), _PREFIX.sub("", uri)
    return "." in shown and full.casefold().startswith(shown.casefold())


def _facet_links(facets: Any) -> Iterator[Range]:
    for facet in _objects(facets, MAX_FACETS):
        index = facet.get("index")
        start, end = (index.get("byteStart"), index.get("byteEnd")) if isinstance(index, dict) else (None, None)
        for feature in _objects(facet.get("features"), MAX_FACETS):
            uri = feature.get("uri")
            if feature.get("$type") == _LINK and _is_offset(start) and _is_offset(end) and _is_web_address(uri):
                yield start, end, uri
                break


def _entity_links(entities: Any, text: str) -> Iterator[Range]:
    """The form before facets: offsets count UTF-16 units."""
    units = text.encode("utf-16-le")
    for entity in _objects(entities, MAX_FACETS):
        index = entity.get("index")
        start, end = (index.get("start"), index.get("end")) if isinstance(index, dict) else (None, None)
        if entity.get("type") != "link" or not _is_offset(start) or not _is_offset(end):
            continue
        uri = entity.get("value")
        if not _is_web_address(uri) or not start < end <= len(units) // 2:
            continue
        try:
            before, shown = (units[low * 2 : high * 2].decode("utf-16-le") for low, high in ((0, start), (start, end)))
        except UnicodeDecodeError:  # half of a surrogate pair
            continue
        byte_start = len(before.encode())
        yield byte_start, byte_start + len(shown.encode()), uri


def _alt_lines(embed: Any) -> Iterator[str]:
    if not isinstance(embed, dict):
        return
    if isinstance(embed.get("media"), dict):  # a quote with media
        yield from _alt_lines(embed["media"])
        return
    kind = "video" if embed.get("$type") == "app.bsky.embed.video" else "image"
    listed = next((embed[name] for name in ("images", "items", "media") if isinstance(embed.get(name), list)), [embed])
    for item in _objects(listed, MAX_MEDIA):
        alt = item.get("alt")
        if isinstance(alt, str) and (line := _SPACES.sub(" ", alt).strip()):
            yield f"[{kind}: {line}]"


def _outer_tags(tags: Any) -> str:
    listed = tags[:MAX_TAGS] if isinstance(tags, list) else []
    words = (_SPACES.sub("", tag).lstrip("#") for tag in listed if isinstance(tag, str))
    return " ".join(f"#{word}" for word in words if word)


def _objects(given: Any, most: int) -> Iterator[dict[str, Any]]:
    if isinstance(given, list):
        yield from (entry for entry in given[:most] if isinstance(entry, dict))


def _is_offset(given: object) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _is_web_address(given: object) -> TypeGuard[str]:
    if not isinstance(given, str) or len(given) > MAX_URI or _BREAKS.search(given):
        return False
    try:
        parts = urlsplit(given)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
