"""Run by test_load in a process of its own: loads a GGUF file as one rank of several, and prints as JSON how many bytes
of memory of its own (mapped files do not count) the process had at most and how many the model holds."""

import json
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from model_runtime.load import load_model
from model_runtime.model import Model


@dataclass
class Alone:
    """A rank that computes nothing."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def all_gather(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError


def own_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def held_bytes(model: Model) -> int:
    """Parameters, each storage once, and what packing has made of them."""
    tensors = list(model.parameters())
    tensors += [m.packed for m in model.modules() if isinstance(getattr(m, "packed", None), Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if not t.is_mkldnn}
    return sum(storages.values()) + sum(t.numel() * t.element_size() for t in tensors if t.is_mkldnn)


def main(small: str, path: str, dtype: str, upcycle: str, rank: str, size: str) -> None:
    torch.set_num_threads(1)
    how = {"dtype": getattr(torch, dtype), "device": "cpu", "upcycle": upcycle == "upcycle"}
    collective = Alone(int(rank), int(size))
    load_model(small, **how, collective=collective)  # what torch prepares once
    before, seen, done = own_bytes(), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(own_bytes())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    model = load_model(path, **how, collective=collective)
    done.set()
    watcher.join()
    print(json.dumps({"peak": max(*seen, own_bytes()) - before, "held": held_bytes(model), "samples": len(seen)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
