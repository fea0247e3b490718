"""The heat map: a PNG that can be read without colour vision, whatever the number of experts."""

from pathlib import Path

import pytest
from PIL import Image, ImageChops

from model_runtime.heat_map import save_heat_map


def lightness(color: tuple[int, int, int]) -> float:
    """Rec. 601 luma, which is what remains without colour."""
    red, green, blue = color
    return 0.299 * red + 0.587 * green + 0.114 * blue


def drawn(folder: Path, use: list[list[int]], title: str = "a title", layers: list[int] | None = None) -> Image.Image:
    path = folder / f"{title}.png"
    save_heat_map(use, path, title=title, layers=list(range(len(use))) if layers is None else layers)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return image.convert("RGB")


def cells(image: Image.Image, count: int) -> list[tuple[int, int, int]]:
    """A corner of each cell of the first row: cells are 44 wide then, from x = 92, y = 76."""
    return [image.getpixel((92 + 44 * expert + 1, 77)) for expert in range(count)]  # type: ignore[misc]


def test_more_work_is_darker_in_every_step(tmp_path: Path) -> None:
    image = drawn(tmp_path, [[0, 10, 20, 30, 40, 50, 60, 70]])
    shades = [lightness(color) for color in cells(image, 8)]
    assert shades == sorted(shades, reverse=True)
    assert all(light - dark > 10 for light, dark in zip(shades, shades[1:], strict=False))


def test_equal_shares_are_equal_however_many_tokens_a_layer_had(tmp_path: Path) -> None:
    image = drawn(tmp_path, [[1, 3], [100, 300]])
    assert image.getpixel((93, 77)) == image.getpixel((93, 77 + 20))
    assert image.getpixel((93 + 44, 77)) == image.getpixel((93 + 44, 77 + 20))


def test_the_numbers_of_layers_and_shares_are_written(tmp_path: Path) -> None:
    one = drawn(tmp_path, [[1, 3], [2, 2]])
    other_layers = drawn(tmp_path, [[1, 3], [2, 2]], layers=[0, 7])
    assert ImageChops.difference(one, other_layers).getbbox() is not None
    inside = drawn(tmp_path, [[300, 100, 100]]).crop((92, 76, 92 + 43, 76 + 19))
    assert len(inside.getcolors() or []) > 2  # the cell's colour, and a number on it


def test_a_long_title_and_the_legend_are_not_cut_off(tmp_path: Path) -> None:
    title = "a model with quite a long name, and then some more words, 1,234 tokens"
    image = drawn(tmp_path, [[1, 3]], title=title)
    white = Image.new("RGB", image.size, (255, 255, 255))
    found = ImageChops.difference(image, white).getbbox()
    assert found is not None and found[2] < image.width - 4 and found[3] < image.height - 4


@pytest.mark.parametrize(("layers", "experts"), [(1, 1), (94, 128), (64, 8), (2, 512)])
def test_any_size_fits_a_screen(tmp_path: Path, layers: int, experts: int) -> None:
    image = drawn(tmp_path, [[layer + expert for expert in range(experts)] for layer in range(layers)])
    assert image.width <= 2300 and image.height <= 2600


def test_no_work_at_all_is_drawn_too(tmp_path: Path) -> None:
    image = drawn(tmp_path, [[0, 0, 0]])
    assert len(set(cells(image, 3))) == 1


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        save_heat_map([[1]], tmp_path / "none" / "heat.png", title="", layers=[0])
