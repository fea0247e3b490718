"""Every setting, read once by the builder. Sections live beside the code they set.

Precedence: builder args > environment > .env > groundswell.yaml > default. An unknown name is an error that tells the
nearest right one, wherever it came from.
"""

import difflib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from ingest.settings import (
    ArchiveSettings,
    BlueskySettings,
    FeedSettings,
    IndexSettings,
    MastodonSettings,
    RssSettings,
    XSettings,
)
from model_runtime.settings import ModelSettings

PREFIX = "GROUNDSWELL_"
YAML_FILE = "groundswell.yaml"


class HttpSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Where the page and the API listen.")
    port: int = Field(8000, ge=1, le=65535, description="Their port.")

    @property
    def base_url(self) -> str:
        """Where a caller on this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class GatewaySettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    api_keys_file: Path | None = Field(
        None, description="One API key a line; unset leaves the API open, on loopback only."
    )

    @field_validator("api_keys_file")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"there is no file {path}")
        return path


class Settings(BaseSettings):
    """What `serve run services.app` takes. Nested names are joined by `__` in the environment and by `.` in args."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=".env",
        yaml_file=YAML_FILE,
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    data_dir: Path = Field(
        default_factory=lambda: Path.home() / ".local/share/groundswell",
        description="Weights, the broker's binary, the index and the logs.",
    )
    http: HttpSettings = HttpSettings()
    feed: FeedSettings = FeedSettings()
    bluesky: BlueskySettings = BlueskySettings()
    mastodon: MastodonSettings = MastodonSettings()
    x: XSettings = XSettings()
    rss: RssSettings = RssSettings()
    index: IndexSettings = IndexSettings()
    archive: ArchiveSettings = ArchiveSettings()
    model: ModelSettings = ModelSettings()
    gateway: GatewaySettings = GatewaySettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, YamlConfigSettingsSource(settings_cls)

    @model_validator(mode="before")
    @classmethod
    def _known_names_only(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        data = _nest_dotted(data)
        known = list(setting_names(cls))
        for name in [*_names_given(data), *_names_in_environment()]:
            if name not in known and not any(right.startswith(f"{name}.") for right in known):
                raise ValueError(_no_such_setting(name, known))
        return data

    @model_validator(mode="after")
    def _open_only_on_loopback(self) -> "Settings":
        if self.gateway.api_keys_file is None and not self.http.is_loopback:
            raise ValueError(
                f"http.host is {self.http.host}: an API without keys is served on loopback only; "
                "set gateway.api_keys_file (GROUNDSWELL_GATEWAY__API_KEYS_FILE)"
            )
        return self

    @property
    def model_file(self) -> Path:
        return Path(self.model.path) if self.model.path else self.data_dir / "models/smollm2-135m-instruct.gguf"

    @property
    def embedder_dir(self) -> Path:
        return self.data_dir / "models/all-minilm-l6-v2"

    @property
    def broker_binary(self) -> Path:
        return self.data_dir / "bin/tansu"

    @property
    def index_dir(self) -> Path:
        return self.data_dir / "index"

    @property
    def cursors_dir(self) -> Path:
        return self.data_dir / "cursors"

    @staticmethod
    def secret(path: Path | None) -> str:
        """What the file holds, "" without one. Read where it is used, so that no bound argument carries it."""
        return path.read_text().strip() if path is not None else ""

    @property
    def brokers(self) -> str:
        """Kafka bootstrap servers: the configured ones, else the embedded broker."""
        return self.feed.brokers or f"127.0.0.1:{self.feed.broker_port}"

    @property
    def source(self) -> str:
        """What the service publishes: the sample feed goes to a broker of one's own only when it is asked for."""
        return self.feed.source or ("sample" if self.has_embedded_broker else "none")

    @property
    def has_embedded_broker(self) -> bool:
        return not self.feed.brokers

    @property
    def has_default_model(self) -> bool:
        return not self.model.path and not self.model.upstream_url

    def stand_ins(self) -> list[str]:
        """The embedded defaults in use, each with what replaces it (DESIGN.md section 5)."""
        lines = [] if self.index.url else ["index: Qdrant Edge, in a folder (use GROUNDSWELL_INDEX__URL for a server)"]
        if self.has_embedded_broker:
            lines.insert(0, "broker: Tansu, in memory (use GROUNDSWELL_FEED__BROKERS for Kafka or Redpanda)")
        if self.source == "sample":
            lines.append("feed: the bundled sample feed of invented posts (GROUNDSWELL_FEED__SOURCE=none turns it off)")
        if self.has_default_model:
            upcycled = ", upcycled to 8 equal experts, top-2" if self.model.upcycle else ""
            lines.append(f"model: SmolLM2-135M-Instruct{upcycled} (use GROUNDSWELL_MODEL__PATH for another)")
        return lines


def setting_names(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of every leaf setting, in the order they are written."""
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from setting_names(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def env_name(setting: str) -> str:
    return PREFIX + setting.replace(".", "__").upper()


def _nest_dotted(data: Mapping[str, Any]) -> dict[str, Any]:
    """`{"model.shards": "1"}` (what `serve run services.app model.shards=1` gives) becomes nested, and wins."""
    nested: dict[str, Any] = {key: value for key, value in data.items() if "." not in key}
    for key, value in data.items():
        if "." not in key:
            continue
        section, _, leaf = key.partition(".")
        inside = nested.get(section)
        inside = inside.model_dump() if isinstance(inside, BaseModel) else inside
        nested[section] = {**(inside if isinstance(inside, Mapping) else {}), **_nest_dotted({leaf: value})}
    return nested


def _names_given(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _names_given(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _names_in_environment() -> Iterator[str]:
    for name in os.environ:
        if name.upper().startswith(PREFIX):
            yield name.upper().removeprefix(PREFIX).lower().replace("__", ".")


def _no_such_setting(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]} ({env_name(nearest[0])})?" if nearest else ""
    return f"there is no setting {name} ({env_name(name)}){hint}"
