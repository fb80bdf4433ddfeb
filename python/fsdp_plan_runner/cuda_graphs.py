"""Forward and backward as a CUDA graph, as torchtitan 0.3.0 runs them (distributed/cudagraph.py, trainer.py): once on a stream of its
own, then captured, then replayed with new inputs copied into those of the capture."""

from __future__ import annotations

from collections.abc import Callable

import torch


class GraphedPass:
    """Calls `run` with the values of a batch, or replays it. Returns its loss, which the graph owns."""

    def __init__(self, run: Callable[[list[torch.Tensor]], torch.Tensor]) -> None:
        self._run = run
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._has_run = False
        self._values: list[torch.Tensor] = []
        self._loss: torch.Tensor | None = None
        self._first = torch.cuda.CUDAGraph()  # Keeps the pool while no other graph has it.
        with self._capturing(self._first):
            pass

    def _capturing(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        return torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")

    def __call__(self, values: list[torch.Tensor]) -> torch.Tensor:
        if not self._has_run:
            self._has_run = True
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                loss = self._run(values)
            current.wait_stream(self._stream)
            return loss
        if self._graph is None:
            self._values = list(values)
            self._graph = torch.cuda.CUDAGraph()
            with self._capturing(self._graph):
                self._loss = self._run(self._values)
        for mine, new in zip(self._values, values, strict=True):
            mine.copy_(new)
        self._graph.replay()
        assert self._loss is not None
        return self._loss
