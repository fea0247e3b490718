"""The collection on a Qdrant server: made when it is missing, refused when it is another. Knows no posts."""

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from ingest.index_points import BM25, DENSE, KEYWORDS, RANGES
from ingest.index_server_calls import IndexUnavailable

OLDEST_SERVER = (1, 16)  # the first with conditional upserts


async def require_version(client: AsyncQdrantClient, url: str) -> None:
    """Raises IndexUnavailable for a server that would not understand conditional upserts, and silently ignore them."""
    version = (await client.info()).version
    parts = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
    if parts < OLDEST_SERVER:
        raise IndexUnavailable(url, f"runs Qdrant {version}, needed is {'.'.join(map(str, OLDEST_SERVER))} or later")


async def ensure_collection(
    client: AsyncQdrantClient, collection: str, url: str, *, dim: int, shards: int, replicas: int
) -> int:
    """Several processes may do so at once. Returns how many replicas there are; `shards` and `replicas` are for a new
    collection. Raises IndexUnavailable for one that holds other vectors."""
    if not await client.collection_exists(collection):
        await _create(client, collection, dim, shards, replicas)
    params = (await client.get_collection(collection)).config.params
    _check(params, collection, url, dim)
    for name in (*KEYWORDS, *RANGES):
        await client.create_payload_index(collection, name, _field_index(name), wait=True)
    return int(params.replication_factor or 1)


async def _create(client: AsyncQdrantClient, collection: str, dim: int, shards: int, replicas: int) -> None:
    """Vectors lie on disk and their int8 copies in memory: the server's own warm tier."""
    try:
        await client.create_collection(
            collection,
            vectors_config={DENSE: models.VectorParams(size=dim, distance=models.Distance.DOT, on_disk=True)},
            sparse_vectors_config={BM25: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            quantization_config=models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
            ),
            on_disk_payload=True,
            shard_number=shards,
            replication_factor=replicas,
            write_consistency_factor=replicas // 2 + 1,
        )
    except (UnexpectedResponse, ValueError):  # local mode raises ValueError
        if not await client.collection_exists(collection):
            raise


def _check(params: models.CollectionParams, collection: str, url: str, dim: int) -> None:
    dense = params.vectors.get(DENSE) if isinstance(params.vectors, dict) else None
    sparse = (params.sparse_vectors or {}).get(BM25)
    if dense is None or sparse is None or sparse.modifier != models.Modifier.IDF:
        raise IndexUnavailable(url, f"the collection {collection} is not an index of posts: it lacks their vectors")
    if dense.size != dim or dense.distance != models.Distance.DOT:
        found = f"{dense.size} dimensions by {dense.distance.value}"
        raise IndexUnavailable(url, f"the collection {collection} holds vectors of {found}, not {dim} by Dot")


def _field_index(name: str) -> models.KeywordIndexParams | models.IntegerIndexParams:
    if name in KEYWORDS:
        return models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
    return models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
