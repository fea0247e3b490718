"""Where a setting comes from, and what a wrong one says."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.settings import HttpSettings, Settings, env_name, setting_names


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No .env or groundswell.yaml of the checkout is read."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_arguments_win_over_environment_over_dotenv_over_yaml_over_default(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings().model.shards == 2
    (elsewhere / "groundswell.yaml").write_text("model: {shards: 3}\nfeed: {topic: from-yaml}\n")
    assert Settings().model.shards == 3
    (elsewhere / ".env").write_text("GROUNDSWELL_MODEL__SHARDS=4\n")
    assert Settings().model.shards == 4
    monkeypatch.setenv("GROUNDSWELL_MODEL__SHARDS", "5")
    assert Settings().model.shards == 5
    assert Settings.model_validate({"model": {"shards": 6}}).model.shards == 6
    assert Settings.model_validate({"model.shards": "7"}).model.shards == 7
    assert Settings.model_validate({"model.shards": "7"}).feed.topic == "from-yaml"


def test_one_argument_leaves_the_rest_of_its_section_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDSWELL_FEED__TOPIC", "mine")
    settings = Settings.model_validate({"feed.source": "none"})
    assert (settings.feed.source, settings.feed.topic) == ("none", "mine")


@pytest.mark.parametrize(
    ("arguments", "wrong", "right"),
    [
        ({"feed": {"sourse": "none"}}, "feed.sourse", "feed.source"),
        ({"model.shard": "1"}, "model.shard", "model.shards"),
        ({"htp": {"port": 1}}, "htp.port", "http.port"),
    ],
)
def test_a_misspelt_argument_names_the_nearest_right_one(arguments: dict[str, object], wrong: str, right: str) -> None:
    with pytest.raises(ValidationError, match=f"there is no setting {wrong} .*did you mean {right} "):
        Settings.model_validate(arguments)


@pytest.mark.parametrize("name", ["GROUNDSWELL_FEED__SOURSE", "GROUNDSWELL_FEEED__SOURCE", "groundswell_feed__sourc"])
def test_a_misspelt_variable_names_the_nearest_right_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "none")
    with pytest.raises(ValidationError, match=r"did you mean feed.source \(GROUNDSWELL_FEED__SOURCE\)"):
        Settings()


def test_a_misspelt_name_in_a_file_is_refused(elsewhere: Path) -> None:
    (elsewhere / "groundswell.yaml").write_text("modell: {shards: 3}\n")
    with pytest.raises(ValidationError, match="did you mean model.shards"):
        Settings()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_without_keys_the_api_listens_on_loopback_only(host: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="set gateway.api_keys_file"):
        Settings.model_validate({"http.host": host})
    keys = tmp_path / "keys"
    keys.write_text("k-1\n")
    assert Settings.model_validate({"http.host": host, "gateway.api_keys_file": str(keys)}).http.host == host


def test_a_keys_file_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(ValidationError, match="there is no file /nowhere/keys"):
        Settings.model_validate({"gateway.api_keys_file": "/nowhere/keys"})


def test_the_names_that_scripts_rely_on_exist() -> None:
    relied_on = """GROUNDSWELL_HTTP__HOST GROUNDSWELL_HTTP__PORT GROUNDSWELL_DATA_DIR GROUNDSWELL_FEED__SOURCE
    GROUNDSWELL_FEED__BROKERS GROUNDSWELL_FEED__TOPIC GROUNDSWELL_FEED__BROKER_PORT GROUNDSWELL_MODEL__PATH
    GROUNDSWELL_MODEL__SHARDS GROUNDSWELL_GATEWAY__API_KEYS_FILE"""
    assert set(relied_on.split()) <= {env_name(name) for name in setting_names(Settings)}


def test_invented_posts_go_to_a_broker_of_ones_own_only_when_asked_for() -> None:
    assert Settings().source == "sample"
    assert Settings.model_validate({"feed.brokers": "kafka:9092"}).source == "none"
    assert Settings.model_validate({"feed.brokers": "kafka:9092", "feed.source": "sample"}).source == "sample"


def test_stand_ins_are_told_and_only_when_in_use() -> None:
    assert any("Tansu" in line for line in Settings().stand_ins())
    real = Settings.model_validate({"feed.brokers": "kafka:9092", "model.path": "/m.gguf"})
    assert [line.split(":")[0] for line in real.stand_ins()] == ["index"]
    other = Settings.model_validate({"feed.brokers": "kafka:9092", "model.upstream_url": "http://vllm:8000"})
    assert [line.split(":")[0] for line in other.stand_ins()] == ["index"]
    assert [settings.has_default_model for settings in (Settings(), real, other)] == [True, False, False]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("localhost", "http://localhost:8000"),
    ],
)
def test_a_caller_on_this_machine_is_told_an_address_that_reaches(host: str, url: str) -> None:
    assert HttpSettings(host=host).base_url == url
