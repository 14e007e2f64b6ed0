"""The runner on a GPU: small calls by bytes as on the CPU, full-size calls through memory shared with the referee.

At full size the candidate gets copies of the inputs that the judge's referee left in the shared block, at addresses
that change from call to call, and its outputs are copied back behind them. The referee, not this process, compares.
Seeds, expected outputs and the reference stay out of reach.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from kernelwright.backends import values
from kernelwright.backends.gpu import GpuRuntime
from kernelwright.evaluation.candidate.runner import Runner, plain_outputs, weights_of
from kernelwright.evaluation.candidate.runner_loop import serve as serve_runner
from kernelwright.evaluation.device import devices, timed_calls
from kernelwright.evaluation.device.devices import Device
from kernelwright.evaluation.device.faults import cause_of
from kernelwright.evaluation.device.timed_calls import NoGraph, TimedCalls
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.program.tensor_contents import changed, overwritten
from kernelwright.tasks import gradients

_UNWATCHED: dict[str, Any] = {"operators": [], "mutated": []}


class GpuRunner(Runner):
    """The runner of one candidate on a GPU (or, in tests, on the CPU)."""

    more: ClassVar[dict[str, str]] = {**Runner.more, "exchange": "exchanged", "run": "ran"}

    def __init__(self, channel: Channel, device: Device) -> None:
        self.place = device
        self.launch_ms = device.launch_ms
        gradients.device = device.name
        super().__init__(channel)
        self.calls = TimedCalls(device)
        self.checked: list[torch.Tensor] = []

    def make_runtime(self) -> Any:
        if self.place.name != "cuda":
            return super().make_runtime()
        values.real_cuda = True
        return GpuRuntime(self._build)

    def install(self) -> None:
        if self.place.name != "cuda":
            super().install()

    def pretend(self) -> list[Any]:
        return [] if self.place.name == "cuda" else super().pretend()

    def received(self, value: Any) -> Any:
        if self.place.name != "cuda":
            return value  # asking for the CPU by name would make it memory of the host, where a GPU is pretended
        tensors = [t.to(self.place.name) for t in wire.tensors_of(value)]
        return wire.replace_tensors(value, tensors)

    def placed(self, model: Any) -> Any:
        return model.to(self.place.name) if isinstance(model, torch.nn.Module) else model

    def ready(self) -> None:
        self.place.poison_chip()

    def device_failed(self) -> bool:
        """Tells whether the context is broken: every later call of the runtime then raises."""
        try:
            self.place.synchronize()
        except Exception as error:
            return cause_of(error) == "device"
        return False

    def settle(self) -> None:
        self.place.synchronize()

    def sent(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()

    def exchange(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Opens the block that the referee shares, in place of the previous one."""
        self.calls.exchange(message.header["handle"], message.header["nbytes"])
        return {}, []

    def run(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Runs full-size calls, one per slot, on copies of the shared inputs; outputs are copied to the shared
        block."""
        header = message.header
        if header["fresh"]:
            self.checked = []
            self.calls.refresh()
        given = self.calls.decoys(header) if header["late"] else self.calls.given(header)
        if header["reuse"]:
            given = [overwritten(self.checked, given[0])]
        self.checked = given[0] if header["watch"] else []
        self.calls.keep(given)
        calls = timed_calls.bound(self.model, header, given)
        devices.poison(self.place, header["outputs"], len(given))
        self.place.poison_chip()
        self.operators.adopt(t for call in given for t in call)
        self.operators.adopt(weights_of(self.model), fixed=True)
        self.operators.begin()
        self.runtime.begin_call()
        torch.manual_seed(header["call_seed"])
        results, report = self._called(header, calls, given)
        facts = self.finished()
        report |= {"problems": [], "foreign": [], **_UNWATCHED}
        if not results:
            report["outputs"] = []
        for slot, result in enumerate(results):
            self._hand_back(header, slot * header["stride"], result, given[slot], facts, report)
        if header["watch"]:
            report |= self._watched(given[-1], len(given) - 1, header)
        self.place.synchronize()
        return {"facts": facts.fields(), **report}, []

    def _called(
        self, header: dict[str, Any], calls: list[Callable[[], Any]], given: list[list[torch.Tensor]]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Returns the candidate's results, with the report of the clock or the profiler."""
        profiled: dict[str, Any] = {"kernels": []}
        times, problem = devices.Times(0.0, 0.0, 0.0, False), ""
        copies = times
        with self._watching() if header["watch"] else self._quiet(), torch.no_grad():
            if header["profile"]:
                results, profiled = self._profiled(calls)
            elif header["watch"]:  # the operator log would see the clock's own work
                results = [calls[0]()]
                self.place.synchronize()
            elif header["graph"]:
                try:
                    result, times = self.calls.measure_graph(calls[0])
                    results = [result]
                except NoGraph as error:
                    results, problem = [], str(error)
            elif header["late"]:
                results, times, copies = self.calls.measure_late(header, calls, given)
            else:
                results, times = self.place.measure(calls)
        report = {"times": dataclasses.asdict(times), "copies": dataclasses.asdict(copies), **profiled}
        return results, {**report, "no_graph": problem, "same_memory": _same_memory(results)}

    def _hand_back(
        self,
        header: dict[str, Any],
        base: int,
        result: Any,
        given: list[torch.Tensor],
        facts: Any,
        report: dict[str, Any],
    ) -> None:
        """Copies one call's outputs into the shared block, if they are of the expected kind; reports anomalies."""
        outputs, problems = plain_outputs(result if header["returned"] else None, given)
        report["problems"] += [p for p in problems if p not in report["problems"]]
        if "outputs" in report and report["outputs"] != _expected(header):
            return
        after = [*outputs, *(given[i] for i in header["changed"])]
        report["outputs"] = [[wire.dtype_name(t.dtype), list(t.shape)] for t in after]
        if report["outputs"] == _expected(header):
            for out, place in zip(after, header["outputs"], strict=True):
                self.calls.view(base, *place).copy_(out)
        if header["watch"]:
            report["foreign"] = self.foreign(outputs, facts)

    def _watched(self, given: list[torch.Tensor], slot: int, header: dict[str, Any]) -> dict[str, Any]:
        """Returns the report of a checked call alone: operators, and inputs that were written to."""
        return {**self.operators.report(), "mutated": changed(self.calls.inputs(header, slot), given)}

    def _quiet(self) -> Any:
        watch = self._watching()
        watch.modes = self.pretend()  # the operator log would be timed with the candidate
        return watch

    def _profiled(self, calls: Sequence[Callable[[], Any]]) -> tuple[list[Any], dict[str, Any]]:
        """Runs calls under torch's profiler (CUPTI). Returns the results and a report.

        The report holds the kernels with count and device time in microseconds; the milliseconds from the first one's
        start to the last one's end (`span_ms`); the milliseconds in which any ran, on whatever stream (`busy_ms`); and
        whether the records were complete enough to tell a call from its clock (`clock`).
        """
        if self.place.name != "cuda":
            return [call() for call in calls], {"kernels": [], "span_ms": 0.0, "busy_ms": 0.0, "clock": True}
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        self.place.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            results, _ = self.place.measure(calls)
        events = trace.profiler.kineto_results.events()
        seen = [e for e in events if e.device_type() == DeviceType.CUDA]
        records = [(e.correlation_id(), e.start_ns(), e.end_ns(), e.name()) for e in seen]
        own, clock = _after_the_clock(_as_launched(records))
        totals: dict[str, list[float]] = {}
        for start, end, name in own:
            total = totals.setdefault(name[:300], [0, 0.0])
            total[0] += 1
            total[1] += (end - start) / 1e3
        kernels: list[Any] = [[name, int(count), time] for name, (count, time) in totals.items()]
        span = (max(e[1] for e in own) - min(e[0] for e in own)) / 1e6 if own else 0.0
        busy = _union([(e[0], e[1]) for e in own]) / 1e6
        kernels = sorted(kernels, key=lambda k: -k[2])[:50]
        return results, {"kernels": kernels, "span_ms": span, "busy_ms": busy, "clock": clock}


def _as_launched(records: list[tuple[int, int, int, str]]) -> list[tuple[int, int, str]]:
    """Returns start, end and name of the device's work in the order in which the host launched it: by CUPTI's numbers.

    If a record has no number, the order is by start. On a shared device the two orders differ: a launch on another
    stream begins before a launch that waits on the first one.
    """
    numbered = all(number > 0 for number, *_ in records)
    return [record[1:] for record in sorted(records, key=None if numbered else lambda record: record[1:])]


def _after_the_clock(seen: list[tuple[int, int, str]]) -> tuple[list[tuple[int, int, str]], bool]:
    """Returns a call's own kernels (start, end, name) from those of a measurement in launch order, and whether they are
    sure.

    The clock's kernels are empty launches, a flush, and the kernel that keeps the device busy. Everything launched
    after that one is the call's, on other streams too. If the profiler lost that one's record, the flush may still mark
    the call's start. Copies from host to host are listed with the device's work, but belong to the host.
    """
    seen, after = [e for e in seen if "Memcpy HtoH" not in e[2]], 0
    for name in devices.FLUSH_KERNELS:
        after = next((i + 1 for i in range(after, len(seen)) if name in seen[i][2]), len(seen) + 1)
    spins = [devices.SPIN_KERNEL in name for _, _, name in seen]
    flushed = after <= len(seen)
    begins = after if flushed else spins.index(False) if False in spins else len(spins)
    own = seen[begins:] if True not in spins[begins:] else seen[spins.index(True, begins) + 1 :]
    return [e for e in own if e[1] > e[0]], flushed and True in spins[begins:]


def _union(intervals: list[tuple[int, int]]) -> int:
    """Returns the length of the union of intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _same_memory(results: list[Any]) -> bool:
    """Tells whether calls return one buffer, as replayed CUDA graphs do: only the last call's values still exist."""
    firsts = [wire.tensors_of(result)[:1] for result in results]
    places = [tensors[0].untyped_storage().data_ptr() for tensors in firsts if tensors]
    return len(set(places)) < len(places)


def _expected(header: dict[str, Any]) -> list[list[Any]]:
    return [[dtype, shape] for _, dtype, shape in header["outputs"]]


def serve(channel: Channel, level: str, device: Device) -> None:
    """Answers the judge until it closes the channel."""
    serve_runner(channel, level, GpuRunner(channel, device))
