"""The runner on a GPU: small calls by bytes like on the CPU, full-size calls through memory shared with the referee.

At full size the candidate gets copies of what the judge's referee left in the shared block, at addresses that change
from call to call, and its outputs are copied back behind them; the referee, not this process, compares. Seeds, expected
outputs and the reference stay out of reach.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import torch

from kernelwright.backends import values
from kernelwright.evaluation import devices, wire
from kernelwright.evaluation.channel import Channel, Message
from kernelwright.evaluation.devices import Device
from kernelwright.evaluation.runner import Runner, plain_outputs, same_bits, weights_of
from kernelwright.evaluation.runner import serve as serve_runner

KEPT_CALLS = 2
"""Inputs of so many earlier calls stay allocated, so that addresses change."""
KEPT_BYTES = 2 << 30
_UNWATCHED: dict[str, Any] = {"operators": [], "mutated": []}


class GpuRunner(Runner):
    """One candidate's life on a GPU (or, in tests, on the processor)."""

    more: ClassVar[dict[str, str]] = {**Runner.more, "exchange": "exchanged", "run": "ran"}

    def __init__(self, channel: Channel, device: Device) -> None:
        self.place = device
        self.launch_ms = device.launch_ms
        super().__init__(channel)
        self.shared: torch.Tensor | None = None
        self.kept: list[list[torch.Tensor]] = []
        self.checked: list[torch.Tensor] = []

    def make_runtime(self) -> Any:
        if self.place.name != "cuda":
            return super().make_runtime()
        from kernelwright.backends.gpu import GpuRuntime

        values.real_cuda = True
        return GpuRuntime(self._build)

    def install(self) -> None:
        if self.place.name != "cuda":
            super().install()

    def pretend(self) -> list[Any]:
        return [] if self.place.name == "cuda" else super().pretend()

    def received(self, value: Any) -> Any:
        tensors = [t.to(self.place.name) for t in wire.tensors_of(value)]
        return wire.replace_tensors(value, tensors)

    def placed(self, model: Any) -> Any:
        return model.to(self.place.name) if isinstance(model, torch.nn.Module) else model

    def settle(self) -> None:
        self.place.synchronize()

    def sent(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()

    def exchange(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Opens the block that the referee shares, in place of the one before."""
        if self.shared is not None:
            self.place.release(self.shared, owner=False)
            self.shared = None
        self.kept = []
        header = message.header
        if header["handle"]:
            self.shared = self.place.open(header["handle"], header["nbytes"])
        return {}, []

    def run(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Full-size calls, one per slot, on copies of the shared inputs; outputs are copied to the shared block.

        All inputs are copied before the first call, so that no call finds what an earlier one has touched.
        """
        header = message.header
        assert self.shared is not None
        base = [slot * header["stride"] for slot in range(len(header["calls"]))]
        given = [[self._view(b, *place).clone() for place in header["inputs"]] for b in base]
        if header["reuse"]:
            given = [self._at_addresses_of(self.checked, given[0])]
        self.checked = given[0] if header["watch"] else []
        self._keep([t for call in given for t in call])
        arguments = [self._arguments(nodes, call) for nodes, call in zip(header["calls"], given, strict=True)]
        devices.poison(self.place, header["outputs"], len(given))
        self.operators.adopt((*[t for call in given for t in call], *weights_of(self.model)))
        self.operators.seen.clear()
        self.runtime.begin_call()
        torch.manual_seed(header["call_seed"])
        results, report = self._calls(header, arguments)
        facts = self.runtime.end_call()
        report |= {"problems": [], "foreign": [], **_UNWATCHED}
        for slot, result in enumerate(results):
            self._hand_back(header, base[slot], result, given[slot], bool(facts.written), report)
        if header["watch"]:
            report |= self._watched(given[-1], base[-1], header)
        self.place.synchronize()
        return {"facts": dataclasses.asdict(facts), **report}, []

    def _at_addresses_of(self, before: list[torch.Tensor], given: list[torch.Tensor]) -> list[torch.Tensor]:
        """The new contents in the memory of the checked call before."""
        same = [(t.shape, t.dtype) for t in before] == [(t.shape, t.dtype) for t in given]
        return [old.copy_(new) for old, new in zip(before, given, strict=True)] if same else given

    def _arguments(self, nodes: list[Any], given: list[torch.Tensor]) -> list[Any]:
        queue = iter(given)
        return [_unpacked(node, queue) for node in nodes]

    def _calls(self, header: dict[str, Any], arguments: list[list[Any]]) -> tuple[list[Any], dict[str, Any]]:
        """The candidate's results, with the clock's or the profiler's report."""
        kernels: list[Any] = []
        times = devices.Times(0.0, 0.0, 0.0, False)
        with self._watching() if header["watch"] else self._quiet(), torch.no_grad():
            if header["profile"]:
                result, kernels = self._profiled(arguments[0])
                results = [result]
            elif header["watch"]:  # the operator log would see the clock's own work
                results = [self.model(*arguments[0])]
                self.place.synchronize()
            else:
                results, times = self.place.measure([functools.partial(self.model, *a) for a in arguments])
        return results, {"times": dataclasses.asdict(times), "kernels": kernels, "same_memory": _same_memory(results)}

    def _hand_back(
        self,
        header: dict[str, Any],
        base: int,
        result: Any,
        given: list[torch.Tensor],
        written: bool,
        report: dict[str, Any],
    ) -> None:
        """One call's outputs into the shared block, where they are of the expected kind; what is odd is reported."""
        outputs, problems = plain_outputs(result, given)
        report["problems"] += [p for p in problems if p not in report["problems"]]
        if "outputs" in report and report["outputs"] != _expected(header):
            return
        report["outputs"] = [[wire.dtype_name(t.dtype), list(t.shape)] for t in outputs]
        if report["outputs"] == _expected(header):
            for out, place in zip(outputs, header["outputs"], strict=True):
                self._view(base, *place).copy_(out)
        if header["watch"]:
            report["foreign"] = [[i, t.numel()] for i, t in enumerate(outputs) if self.operators.is_foreign(t, written)]

    def _watched(self, given: list[torch.Tensor], base: int, header: dict[str, Any]) -> dict[str, Any]:
        """What only a checked call looks at: operators, and inputs that were written to."""
        originals = [self._view(base, *place) for place in header["inputs"]]
        changed = [i for i, (a, b) in enumerate(zip(originals, given, strict=True)) if not same_bits(a, b)]
        return {"operators": sorted(self.operators.seen, key=lambda s: -s[1])[:50], "mutated": changed}

    def _view(self, base: int, offset: int, dtype: str, shape: list[int]) -> torch.Tensor:
        assert self.shared is not None
        return devices.view(self.shared, base + offset, getattr(torch, dtype), shape)

    def _keep(self, given: list[torch.Tensor]) -> None:
        size = sum(t.nbytes for t in given)
        if size * KEPT_CALLS > KEPT_BYTES:
            self.kept = []
            return
        self.kept = [*self.kept, given][-KEPT_CALLS:]

    def _quiet(self) -> Any:
        watch = self._watching()
        watch.modes = self.pretend()  # the operator log would be timed with the candidate
        return watch

    def _profiled(self, arguments: list[Any]) -> tuple[Any, list[Any]]:
        """A call under torch's profiler (CUPTI): its kernels with their count and device time in microseconds."""
        if self.place.name != "cuda":
            return self.model(*arguments), []
        from torch.profiler import ProfilerActivity, profile

        self.place.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            result = self.model(*arguments)
            self.place.synchronize()
        kernels = [
            [event.key[:300], int(event.count), float(event.device_time_total)]
            for event in trace.key_averages()
            if event.device_time_total > 0
        ]
        return result, sorted(kernels, key=lambda k: -k[2])[:50]


def _same_memory(results: list[Any]) -> bool:
    """Whether calls answer in one buffer, as replayed CUDA graphs do: only the last one's values are still there."""
    firsts = [wire.tensors_of(result)[:1] for result in results]
    places = [tensors[0].untyped_storage().data_ptr() for tensors in firsts if tensors]
    return len(set(places)) < len(places)


def _expected(header: dict[str, Any]) -> list[list[Any]]:
    return [[dtype, shape] for _, dtype, shape in header["outputs"]]


def _unpacked(node: dict[str, Any], tensors: Any) -> Any:
    """A value of `wire.pack_values` whose tensors come in order."""
    ((kind, value),) = node.items()
    if kind == "t":
        return next(tensors)
    if kind == "l":
        return [_unpacked(v, tensors) for v in value]
    if kind == "p":
        return tuple(_unpacked(v, tensors) for v in value)
    if kind == "d":
        return {k: _unpacked(v, tensors) for k, v in value}
    return getattr(torch, value) if kind == "y" else value


def serve(channel: Channel, level: str, device: Device) -> None:
    """Answers the judge until it closes the channel."""
    serve_runner(channel, level, GpuRunner(channel, device))
