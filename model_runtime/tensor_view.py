"""Rectangles of parameters that are assembled from stored tensors when they are read. Knows no file format."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model_runtime.weights import Part, Weight

Box = tuple[slice, ...]  # one slice with start and stop for each dimension


@dataclass(frozen=True, slots=True)
class View:
    """`read` gives a rectangle of a tensor of this shape, and touches no more of the file than that needs."""

    shape: tuple[int, ...]
    read: Callable[[Box], Tensor]

    def weight(self) -> Weight:
        def read(part: Part | None) -> Tensor:
            box = tuple(slice(0, length) for length in self.shape)
            if part is None:
                return self.read(box)
            pieces = [self.read((*box[: part.dim], slice(*span), *box[part.dim + 1 :])) for span in part.ranges]
            return pieces[0] if len(pieces) == 1 else torch.cat(pieces, part.dim)

        return Weight(self.shape, read)


def item(view: View, index: int) -> View:
    """view[index]"""
    return View(view.shape[1:], lambda box: view.read((slice(index, index + 1), *box))[0])


def picked(view: View, dim: int, which: range) -> View:
    """view[which] along `dim`. Of a stored tensor or an item of one only: the steps are the file's."""

    def read(box: Box) -> Tensor:
        first, last = which.start + box[dim].start * which.step, which.start + (box[dim].stop - 1) * which.step
        return view.read((*box[:dim], slice(first, last + 1, which.step), *box[dim + 1 :]))

    return View((*view.shape[:dim], len(which), *view.shape[dim + 1 :]), read)


def transposed(view: View) -> View:
    return View(view.shape[::-1], lambda box: view.read(box[::-1]).T)


def stacked(views: list[View]) -> View:
    """One above the other, by rows."""

    def read(box: Box) -> Tensor:
        pieces, top = [], 0
        for view in views:
            start, stop = max(box[0].start - top, 0), min(box[0].stop - top, view.shape[0])
            if start < stop:
                pieces.append(view.read((slice(start, stop), *box[1:])))
            top += view.shape[0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    return View((sum(view.shape[0] for view in views), *views[0].shape[1:]), read) if len(views) > 1 else views[0]


def with_adjacent_pairs(view: View, head_dim: int) -> View:
    """Rows of each head from (0, P/2), (1, P/2 + 1) ... as pairs to pairs side by side, as model.py turns them."""

    def read(box: Box) -> Tensor:
        top = box[0].start // head_dim * head_dim
        bottom = -(-box[0].stop // head_dim) * head_dim
        heads = view.read((slice(top, bottom), *box[1:]))
        pairs = heads.view(-1, 2, head_dim // 2, *heads.shape[1:]).transpose(1, 2).reshape(heads.shape)
        return pairs[box[0].start - top : box[0].stop - top]

    return View(view.shape, read)


def padded(view: View, shape: tuple[int, ...]) -> View:
    """With zeros to the right and below."""

    def read(box: Box) -> Tensor:
        kept = tuple(slice(min(cut.start, n), min(cut.stop, n)) for cut, n in zip(box, view.shape, strict=True))
        values = view.read(kept)
        wide = values.new_zeros([cut.stop - cut.start for cut in box])
        wide[tuple(slice(0, length) for length in values.shape)] = values
        return wide

    return View(shape, read) if shape != view.shape else view
