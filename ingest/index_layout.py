"""What an embedded index's folder is: a file in it says for which vectors and which share of the posts it was made."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ingest.index_tier import IndexUnusable

FILE = "layout.json"
LAYOUT = 2  # 1 was a single shard in the folder itself


@dataclass(frozen=True, slots=True)
class Layout:
    dim: int
    shard: int = 0
    shards: int = 1


def claim(path: Path, wanted: Layout) -> None:
    """Makes the folder an index of this kind if it is new or empty; raises IndexUnusable if it is another."""
    if (path / "edge_config.json").is_file():
        raise IndexUnusable(str(path), "was made by an earlier version; move it away, and the feed fills a new one")
    if wanted.shards > 1 and (path.parent / FILE).is_file():
        raise IndexUnusable(str(path.parent), f"was made for one shard, not for {wanted.shards}")
    file = path / FILE
    if not file.is_file():
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise IndexUnusable(str(path), "is neither an index nor an empty folder")
        path.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}-{FILE}")
        draft.write_text(json.dumps({"layout": LAYOUT, **asdict(wanted)}))
        draft.replace(file)
        return
    try:
        kept = json.loads(file.read_text())
        layout, found = kept.pop("layout"), Layout(**kept)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IndexUnusable(str(path), f"{FILE} cannot be read") from error
    if layout != LAYOUT:
        raise IndexUnusable(str(path), f"has layout {layout}, this version knows {LAYOUT}")
    if found.dim != wanted.dim:
        raise IndexUnusable(str(path), f"holds vectors of {found.dim} dimensions, not {wanted.dim}")
    if found != wanted:
        made, asked = (f"shard {one.shard} of {one.shards}" for one in (found, wanted))
        raise IndexUnusable(
            str(path), f"was made as {made}, not as {asked}: posts would be looked for in the wrong one"
        )
