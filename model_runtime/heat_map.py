"""Expert use as a picture: a row per layer, a column per expert. Darker is more, in one scale of grey-blue whose
lightness alone carries the value, so it reads without colour vision and in print; the shares stand in the cells."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_RAMP = ((250, 250, 246), (158, 190, 214), (58, 112, 163), (12, 30, 64))  # from light to dark, evenly spaced
_INK, _PAPER = (20, 20, 20), (255, 255, 255)
_LEFT, _TOP, _MARGIN = 92, 76, 16
_LEGEND_WIDTH, _LEGEND_HEIGHT = 240, 14
_WRITTEN_CELL = 44  # as wide as a share needs; narrower cells have none
_MOST_WIDTH, _MOST_HEIGHT = 1600, 2400

Color = tuple[int, int, int]


def save_heat_map(use: Sequence[Sequence[int]], path: Path, *, title: str, layers: Sequence[int]) -> None:
    """Writes a PNG. `use[l][e]`: tokens that expert e of layer number `layers[l]` computed. Raises OSError."""
    assert use and use[0] and len(use) == len(layers), "no experts, or layers without a number"
    shares = [[count / max(1, sum(layer)) for count in layer] for layer in use]
    _Picture(shares, title, layers).drawn().save(path, format="PNG", optimize=True)


class _Picture:
    def __init__(self, shares: list[list[float]], title: str, numbers: Sequence[int]) -> None:
        self._shares, self._title, self._numbers = shares, title, numbers
        self._layers, self._experts = len(shares), len(shares[0])
        self._most = max(max(layer) for layer in shares) or 1.0
        self._width = max(4, min(_WRITTEN_CELL, _MOST_WIDTH // self._experts))
        self._height = max(4, min(20, _MOST_HEIGHT // self._layers))
        self._font = ImageFont.load_default(12)
        self._even = 1 / self._experts
        self._told = f"{_percent(self._most)} % of a layer's work; the mark: even, {_percent(self._even)} %"
        widths = (
            _LEFT + self._experts * self._width,
            _LEFT + _LEGEND_WIDTH + 8 + int(self._font.getlength(self._told)),
            _MARGIN + int(self._font.getlength(title)),
        )
        size = (max(widths) + _MARGIN, _TOP + self._layers * self._height + _MARGIN)
        self._image = Image.new("RGB", size, _PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def drawn(self) -> Image.Image:
        self._text((_MARGIN, 16), self._title)
        self._legend()
        for layer in range(self._layers):
            for expert in range(self._experts):
                self._cell(layer, expert)
        for layer in _labelled(self._layers, self._height, 16):
            self._text((_MARGIN, self._row(layer)), f"layer {self._numbers[layer]}")
        for expert in _labelled(self._experts, self._width, 28):
            self._text((_LEFT + expert * self._width + self._width // 2, _TOP - 10), str(expert), "mm")
        return self._image

    def _legend(self) -> None:
        top = 34
        for x in range(_LEGEND_WIDTH):
            self._draw.line([(_LEFT + x, top), (_LEFT + x, top + _LEGEND_HEIGHT)], _color(x / (_LEGEND_WIDTH - 1)))
        self._draw.rectangle((_LEFT - 1, top - 1, _LEFT + _LEGEND_WIDTH, top + _LEGEND_HEIGHT + 1), outline=_INK)
        mark = _LEFT + round(self._even / self._most * (_LEGEND_WIDTH - 1))
        self._draw.line([(mark, top - 4), (mark, top + _LEGEND_HEIGHT + 4)], _INK)
        middle = top + _LEGEND_HEIGHT // 2
        self._text((_LEFT - 8, middle), "0 %", "rm")
        self._text((_LEFT + _LEGEND_WIDTH + 8, middle), self._told)

    def _cell(self, layer: int, expert: int) -> None:
        share = self._shares[layer][expert]
        left, top = _LEFT + expert * self._width, _TOP + layer * self._height
        self._draw.rectangle((left, top, left + self._width - 2, top + self._height - 2), _color(share / self._most))
        if self._width >= _WRITTEN_CELL and self._height >= 14:
            ink = _PAPER if share / self._most > 0.5 else _INK
            self._text((left + self._width // 2, self._row(layer)), _percent(share), "mm", ink)

    def _row(self, layer: int) -> int:
        return _TOP + layer * self._height + self._height // 2

    def _text(self, at: tuple[int, int], text: str, anchor: str = "lm", ink: Color = _INK) -> None:
        self._draw.text(at, text, ink, self._font, anchor)


def _color(value: float) -> Color:
    """0 to 1 -> light to dark."""
    place = value * (len(_RAMP) - 1)
    first = min(int(place), len(_RAMP) - 2)
    pairs = zip(_RAMP[first], _RAMP[first + 1], strict=True)
    red, green, blue = (round(a + (b - a) * (place - first)) for a, b in pairs)
    return red, green, blue


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _labelled(count: int, size: int, needed: int) -> range:
    """Every so many, so that the labels do not touch."""
    return range(0, count, -(-needed // size))
