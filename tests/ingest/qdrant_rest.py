"""A Qdrant server for tests: the REST calls that the index makes, over qdrant-client's local mode, with faults.

What it cannot show is whether a real server does the same: tests/contracts runs on one where QDRANT_URL is set.
"""

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from pydantic import BaseModel, TypeAdapter
from qdrant_client import AsyncQdrantClient, models
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

SELECTOR = TypeAdapter(models.PointsSelector)
READS = ("/exists", "/points", "/scroll", "/count", "/query/batch")


class Server:
    """`faults`: what becomes of the next calls, one each: a status ("503" before, "500 after" it was done), "lost":
    done, but the answer breaks off, or "fine". `changes_only`: reads are spared."""

    def __init__(self, *, version="1.16.2", api_key=""):
        self.version, self.api_key = version, api_key
        self.client = AsyncQdrantClient(":memory:")
        self.faults: deque[str] = deque()
        self.changes_only = True
        self.calls: Counter[str] = Counter()
        self.bodies: list[int] = []  # bytes of each change
        self.asked: list[tuple[str, dict[str, str], Any]] = []  # path, query and body of each call
        self.port, self.replicas = 0, 1

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def running(self):
        paths = ["/", "/{rest:path}"]
        app = Starlette(routes=[Route(path, self._answer, methods=["GET", "PUT", "POST"]) for path in paths])
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        self.port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.force_exit = server.should_exit = True
            await serving

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if self.api_key and request.headers.get("api-key") != self.api_key and path != "/":
            return JSONResponse({"status": {"error": "Invalid API key"}}, 401)
        body = await request.body()
        self.calls[path.rsplit("/", 1)[-1] if not path.endswith("/query/batch") else "query"] += 1
        self.asked.append((path, dict(request.query_params), body))
        is_change = path.startswith("/collections/") and request.method != "GET" and not path.endswith(READS)
        fault = self.faults.popleft() if self.faults and (is_change or not self.changes_only) else "fine"
        if fault.isdigit():
            headers = {"retry-after": "0"} if fault == "429" else {}
            return JSONResponse({"status": {"error": "not now"}}, int(fault), headers)
        if is_change:
            self.bodies.append(len(body))
        try:
            result = await self._result(request.method, path, body)
        except ValueError as error:
            return JSONResponse({"status": {"error": str(error)}}, 400)
        if fault.endswith("after"):
            return JSONResponse({"status": {"error": "broken"}}, int(fault.split()[0]))
        content = {"title": "qdrant", "version": self.version} if path == "/" else {"result": result, "status": "ok"}
        answer = JSONResponse(content | ({} if path == "/" else {"time": 0.0}))
        if fault == "lost":
            answer.headers["content-length"] = str(len(answer.body) + 100)
        return answer

    async def _result(self, method: str, path: str, body: bytes) -> Any:
        if path == "/":
            return None
        _, _, name, *rest = path.split("/")
        call = "/".join(rest)
        client = self.client
        if (method, call) == ("GET", "exists"):
            return {"exists": await client.collection_exists(name)}
        if (method, call) == ("GET", ""):
            info = await client.get_collection(name)
            info.config.params.replication_factor = self.replicas  # local mode forgets it
            return _json(info)
        if (method, call) == ("PUT", ""):
            wanted = models.CreateCollection.model_validate_json(body)
            self.replicas = wanted.replication_factor
            return await client.create_collection(
                name, vectors_config=wanted.vectors, sparse_vectors_config=wanted.sparse_vectors
            )
        if call == "index":
            models.CreateFieldIndex.model_validate_json(body)
            return _json(models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED))
        return await self._points(name, call.removeprefix("points").strip("/"), body)

    async def _points(self, name: str, call: str, body: bytes) -> Any:
        client = self.client
        if call == "":
            asked = models.PointRequest.model_validate_json(body)
            found = await client.retrieve(
                name, asked.ids, with_payload=asked.with_payload, with_vectors=asked.with_vector
            )  # fmt: skip
            return [_json(record) for record in found]
        if call == "scroll":
            page = models.ScrollRequest.model_validate_json(body)
            records, following = await client.scroll(
                name, page.filter, page.limit, page.order_by, page.offset, page.with_payload
            )
            return {"points": [_json(record) for record in records], "next_page_offset": following}
        if call == "count":
            return _json(await client.count(name, models.CountRequest.model_validate_json(body).filter))
        if call == "query/batch":
            batch = models.QueryRequestBatch.model_validate_json(body)
            return [_json(answer) for answer in await client.query_batch_points(name, batch.searches)]
        if call == "delete":
            return _json(await client.delete(name, SELECTOR.validate_json(body)))
        if call == "payload":
            given = models.SetPayload.model_validate_json(body)
            chosen = models.FilterSelector(filter=given.filter) if given.filter else given.points
            return _json(await client.set_payload(name, given.payload, chosen))
        assert call == "batch", call
        operations = models.UpdateOperations.model_validate_json(body).operations
        return [_json(result) for result in await client.batch_update_points(name, operations)]


def _json(model: BaseModel) -> Any:
    return model.model_dump(mode="json")
