"""Why a match has its score, in short plain sentences. Reads Match.why; says nothing of what is not there."""

from datetime import UTC, datetime

from ingest.post import Match


def explain(match: Match) -> list[str]:
    """One sentence for each part of the score, in the order in which they were applied."""
    return [sentence for sentence in (*_relevance(match), *_adjusted(match), *_repeated(match)) if sentence]


def _relevance(match: Match) -> list[str]:
    why, sentences = match.why, []
    if "words" in why:
        sentences.append(f"It holds {why['words']:.0%} of the words asked for (BM25 {why.get('bm25', 0.0):.1f}).")
    if "cosine" in why:
        sentences.append(f"Its meaning is {_nearness(why['cosine'])} the question's (cosine {why['cosine']:.2f}).")
    if "rerank" in why:
        sentences.append(f"The cross-encoder, which read both together, gave it {why['rerank']:.2f}.")
    elif "relevance" in why:
        sentences.append(f"Words and meaning together make its relevance {why['relevance']:.2f}.")
    return sentences


def _adjusted(match: Match) -> list[str]:
    sentences = []
    if match.clock:
        wrong = "ahead of its arrival" if match.clock == "future" else "long before its arrival"
        sentences.append(f"It is dated {wrong}, so it does not count as new.")
    elif match.why.get("recency", 1.0) >= 1.005:
        sentences.append(f"Being new, it counts {match.why['recency']:.2f} times.")
    if match.why.get("diversity", 1.0) <= 0.995:
        sentences.append(f"Being like a match above it, it counts {match.why['diversity']:.2f} times.")
    return [*sentences, f"Its score is {match.score:.2f}."]


def _repeated(match: Match) -> list[str]:
    if match.repeats == 1:
        return []
    people = "one author" if match.independent == 1 else f"{match.independent} authors"
    said = f"It stands for {match.repeats} posts that say the same, {people} by themselves."
    if match.first_ms is None:
        return [said]
    first = datetime.fromtimestamp(match.first_ms / 1000, UTC)
    return [said, f"It was first said at {first:%Y-%m-%d %H:%M} UTC."]


def _nearness(cosine: float) -> str:
    return "close to" if cosine >= 0.6 else "near" if cosine >= 0.4 else "far from"
