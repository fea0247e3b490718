"""The graph of deployments, top to bottom. Nothing else lives here, and nothing heavy is imported."""

from typing import Any, cast

import ray
from ray import serve
from ray.serve import Application, Deployment

from services.deployments import Gateway, Generator, Index, Ingester, Publisher, Retriever, SafetyFilter
from services.settings import HttpSettings, Settings


def app(settings: Settings) -> Application:
    """`serve run services.app`: args, environment and files make the settings (services/settings.py)."""
    _listen(settings.http)
    safety = _deploy(SafetyFilter).bind()
    indexes = _indexes(settings)
    retriever = _deploy(Retriever).bind(settings, indexes)
    publisher = _deploy(Publisher).bind(settings)
    ingester = _deploy(Ingester).bind(settings, safety, retriever, indexes)
    generator = _deploy(Generator, graceful_shutdown_timeout_s=60.0).bind(settings)
    gateway = _deploy(serve.ingress()(Gateway), graceful_shutdown_timeout_s=60.0)
    return gateway.bind(settings, safety, indexes, retriever, publisher, ingester, generator)


def _indexes(settings: Settings) -> list[Application]:
    """The embedded index has a deployment for each shard, since each has one owner; a Qdrant server has its own."""
    if settings.index.url or settings.index.shards == 1:
        return [_deploy(Index).bind(settings)]
    return [
        _deploy(Index).options(name=f"Index-{shard}").bind(settings, shard) for shard in range(settings.index.shards)
    ]


def _deploy(cls: Any, graceful_shutdown_timeout_s: float = 5.0) -> Deployment:
    """A replica asks for a tenth of a CPU (with Serve's default of one, two cores never start the graph), and takes as
    many streams as come: admission is the engine's, with our own error."""
    deployment = serve.deployment(
        cls,
        ray_actor_options={"num_cpus": 0.1},
        max_ongoing_requests=1000,
        health_check_period_s=2.0,
        health_check_timeout_s=30.0,
        graceful_shutdown_timeout_s=graceful_shutdown_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
    )
    return cast(Deployment, deployment)


def _listen(http: HttpSettings) -> None:
    """`serve run` takes the address from a config file only. Where it has not started anything yet, and the address is
    not Serve's own default, start Serve's proxy at ours; on a cluster that runs already its own address stays."""
    if http != HttpSettings() and not ray.is_initialized():
        serve.start(http_options={"host": http.host, "port": http.port})
