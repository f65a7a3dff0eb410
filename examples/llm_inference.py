"""Inference for `llm_worker.py`: an engine that serves many rollouts at once, and the client that they speak through.

The client is instrumented with the OpenTelemetry API, as a real one would be, and knows nothing of rltel: its spans
nest under the rollout because a rollout is an OpenTelemetry context.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from typing import NamedTuple

import torch
from llm_policy import Policy
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from torch import Tensor

import rltel
from rltel.export.otel.perfetto_spans import PerfettoSpanExporter

ENGINE_ROWS = 16
"""How many sequences the engine serves at once."""


class Request(NamedTuple):
    """A sequence that waits for the engine: tokens to read on from a state."""

    tokens: list[int]
    state: Tensor | None
    answer: asyncio.Future[tuple[Tensor, Tensor]]


class Engine:
    """Batched inference: a step serves those that wait, up to `ENGINE_ROWS` that read equally many tokens."""

    def __init__(self) -> None:
        self.policy = Policy()
        self.waiting: deque[Request] = deque()
        self.context = copy_context()  # a step belongs to none of the rollouts that it serves

    async def read(self, tokens: list[int], state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of what may be said after these tokens, and the state to go on from."""
        loop = asyncio.get_running_loop()
        request = Request(tokens, state, loop.create_future())
        if not self.waiting:
            loop.call_soon(self.step, context=self.context)
        self.waiting.append(request)
        return await request.answer

    @torch.no_grad()
    def step(self) -> None:
        """Serves some, and comes back for the others."""
        served = self._next_rows()
        rltel.counter("engine/rows", len(served))
        with rltel.slice("engine_step", attributes={"rows": len(served), "tokens": len(served[0].tokens)}):
            states = [each.state for each in served if each.state is not None]
            state = torch.cat(states, dim=1) if states else None
            logits, state = self.policy(torch.tensor([each.tokens for each in served]), state)
            log_probs = logits[:, -1].log_softmax(-1)
        for row, each in enumerate(served):
            each.answer.set_result((log_probs[row], state[:, row : row + 1]))
        if self.waiting:
            asyncio.get_running_loop().call_soon(self.step, context=self.context)

    def _next_rows(self) -> list[Request]:
        first = self.waiting[0]
        like = [each for each in self.waiting if _shape(each) == _shape(first)][:ENGINE_ROWS]
        for each in like:
            self.waiting.remove(each)
        return like


def _shape(request: Request) -> tuple[int, bool]:
    return len(request.tokens), request.state is None


class InferenceClient:
    """What speaks to the engine, instrumented by the conventions for generative AI."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tracer = trace.get_tracer("toy_inference")

    async def complete(self, tokens: list[int], state: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `Engine.read`; a span around it."""
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "toy",
            "gen_ai.request.model": "toy-gru",
            "gen_ai.usage.input_tokens": len(tokens),
            "gen_ai.usage.output_tokens": 1,
        }
        with self.tracer.start_as_current_span(
            "text_completion toy-gru", kind=trace.SpanKind.CLIENT, attributes=attributes
        ):
            return await self.engine.read(tokens, state)


def users_tracing(*, to_collector: bool) -> TracerProvider:
    """What a program that is instrumented already has: a TracerProvider of its own, here with two destinations.

    To the timeline of the run, and to the Collector if there is one.
    """
    provider = TracerProvider(resource=Resource.create({"service.name": "toy-inference"}))
    provider.add_span_processor(BatchSpanProcessor(PerfettoSpanExporter(), max_queue_size=1 << 16))
    if to_collector:
        # Not needed without a Collector, and it takes long to import.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=500))
    trace.set_tracer_provider(provider)
    return provider
