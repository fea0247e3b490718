"""What the experts do, as Ray's metrics: every node of the cluster exports them to Prometheus."""

import time

from ray.util.metrics import Gauge

from model_runtime.expert_watch import ExpertWatch

PERIOD_S = 5.0


class ExpertMetrics:
    """The gauges begin with "groundswell_expert_"; those of a layer carry its number among the layers of experts."""

    def __init__(self, watch: ExpertWatch) -> None:
        self._watch = watch
        self._due = 0.0
        self._imbalance = _gauge("imbalance", "The busiest expert's work over the mean's.", "layer")
        self._use_entropy = _gauge("use_entropy", "How even the work is spread over the experts; 1 is even.", "layer")
        self._routing_entropy = _gauge("routing_entropy", "How undecided the router is about one token, 0 to 1.")
        self._switches = _gauge("switches_per_100_tokens", "How often the first expert changes from token to token.")
        self._failures = _gauge("failures", "Times that an expert was left out of a token's mix, since the start.")
        self._trips = _gauge("trips", "Times that an expert was taken out of routing, since the start.")
        self._left_out = _gauge("left_out", "Experts that are out of routing now.")

    def update(self) -> None:
        """Called after every step; does something every PERIOD_S."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + PERIOD_S
        use, breaker = self._watch.log.summary(), self._watch.breaker.summary()
        for layer, (imbalance, entropy) in enumerate(zip(use.imbalance, use.use_entropy, strict=True)):
            self._imbalance.set(imbalance, tags={"layer": str(layer)})
            self._use_entropy.set(entropy, tags={"layer": str(layer)})
        if use.routing_entropy is not None:
            self._routing_entropy.set(use.routing_entropy)
        self._switches.set(use.switches_per_100_tokens)
        self._failures.set(breaker.failures)
        self._trips.set(breaker.trips)
        self._left_out.set(len(breaker.left_out))


def _gauge(name: str, description: str, *tags: str) -> Gauge:
    return Gauge(f"groundswell_expert_{name}", description, tag_keys=tags)
