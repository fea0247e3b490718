"""A text -> pieces that fit the embedder's window. Needs no tokenizer."""

import regex

MAX_COST = 240  # of MiniLM's 254 word pieces; the cost below errs on the high side
GRAPHEME = regex.compile(r"\X")
SENTENCE_END = frozenset(".!?\u2026\n\u3002\uff01\uff1f\u061f\u06d4\u0964")
LETTER_COST = 0.34  # of a letter or digit in ASCII; anything else may be a word piece by itself
MIN_SHARE = 0.5  # a piece is cut at a sentence's end, or else at a space, if that leaves it at least this full


def split(text: str) -> list[str]:
    """Nearly always [text]. A longer text is cut after a sentence or at a space, never inside a grapheme cluster.

    [] for a blank text. Together the pieces hold every character of the text but the spaces at their ends.
    """
    pieces = []
    graphemes: list[str] = GRAPHEME.findall(text)
    costs = [_cost(grapheme) for grapheme in graphemes]
    start = 0
    while start < len(graphemes):
        end = _end(graphemes, costs, start)
        pieces.append("".join(graphemes[start:end]).strip())
        start = end
    return [piece for piece in pieces if piece]


def _end(graphemes: list[str], costs: list[float], start: int) -> int:
    """One past the last grapheme of the piece that begins at `start`."""
    cost, sentence, space = 0.0, 0, 0
    for i in range(start, len(graphemes)):
        cost += costs[i]
        if cost > MAX_COST and i > start:
            return sentence or space or i
        if cost >= MAX_COST * MIN_SHARE:
            if graphemes[i][0] in SENTENCE_END:
                sentence = i + 1
            elif graphemes[i].isspace():
                space = i + 1
    return len(graphemes)


def _cost(grapheme: str) -> float:
    """About how many word pieces of a BERT vocabulary; a word is at least one, so its first space pays the rest."""
    if len(grapheme) == 1 and grapheme.isascii():
        if grapheme.isalnum():
            return LETTER_COST
        return 0.0 if grapheme.isspace() else 1.0
    return 0.0 if grapheme.isspace() else float(len(grapheme))
