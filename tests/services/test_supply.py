"""What the service publishes itself, where no broker and no network is needed."""

from ingest.post import Removal
from ingest.sources.arrival import Arrival
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


async def test_a_removal_that_could_not_be_published_is_told_from_one_that_was(tmp_path):
    """Or X's look-up would forget it (x_recheck.py), and what was removed there would be shown for ever."""
    settings = Settings.model_validate({"data_dir": tmp_path, "feed.brokers": "127.0.0.1:1", "feed.source": "none"})
    supply = Supply(settings)
    assert await supply._publish_all(None) == []
    assert await supply._publish_all(Arrival((Removal("x:1", 1),))) is None
    await supply.close()
