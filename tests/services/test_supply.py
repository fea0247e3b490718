"""What the service publishes itself, where no broker and no network is needed."""

from services.settings import Settings
from services.supply import Supply


async def test_a_question_is_not_looked_up_when_the_files_of_the_search_cannot_be_used(tmp_path):
    settings = Settings.model_validate(
        {"data_dir": tmp_path, "feed.brokers": "127.0.0.1:1", "feed.source": "none", "x.search": True}
    )
    settings.cursors_dir.mkdir(parents=True)
    (settings.cursors_dir / "x-published.sqlite").write_bytes(b"no database" * 1000)
    supply = Supply(settings)
    assert await supply.look_up("what about the harbour?") == []
    await supply.close()
