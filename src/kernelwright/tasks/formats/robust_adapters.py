"""Python text appended to a robust-kbench module, which turns it into a task in KernelBench's format.

The text runs where a task's own code runs and needs only torch. `COMMON` records the arguments with which the module's
`Model.forward` calls `fn`. `FORWARD` makes these the inputs and `forward_fn` the reference. `BACKWARD` makes the
arguments of the candidate's `backward` the inputs, and autograd's gradients of `forward_fn` the reference.
"""

from __future__ import annotations

DEFAULT = "(default)"
"""Marks an argument that this setting leaves out and another setting has."""

COMMON = '''

# What follows was added when the folder was read: its settings, and what makes a task of the module above.
import inspect

import torch

{constants}
_INIT = {init}
_INPUTS = {inputs}
_their_model, _their_inputs = Model, get_inputs


def _chosen(names):
    values = {{argument: globals()[constant] for argument, constant in names.items()}}
    return {{argument: value for argument, value in values.items() if value != {default!r}}}


def _vary(model):
    """Weights that start as one value get many, so that they cannot be skipped unseen."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        learnt = isinstance(tensor, torch.nn.Parameter) or name.endswith(("running_mean", "running_var"))
        if not learnt or not tensor.is_floating_point() or not tensor.numel() or tensor.device.type == "meta":
            continue
        first = tensor.flatten()[0]
        if bool((tensor == first).all()):
            draw = torch.rand_like(tensor)
            tensor.copy_(0.4 * draw - 0.2 if float(first) == 0 else first * (0.5 + draw))


def _arguments():
    """The arguments with which Model.forward calls fn."""
    calls = []

    def fn(*given, **named):
        bound = inspect.signature(forward_fn).bind(*given, **named) if named else None
        calls.append([*bound.args, *bound.kwargs.values()] if bound else list(given))
        return calls

    ours, globals()["Model"] = Model, _their_model  # for super(Model, self)
    try:
        with torch.no_grad():
            model = _their_model(**_chosen(_INIT))
            _vary(model)
            values = _their_inputs(**_chosen(_INPUTS))
            if isinstance(values, dict):
                values = [values[name] for name in input_names]
            result = model(*(values if isinstance(values, (list, tuple)) else [values]), fn=fn)
    except Exception:
        if not calls:
            raise
        result = None  # it has computed with what fn returned
    finally:
        globals()["Model"] = ours
    if result is not calls or len(calls) != 1:
        raise RuntimeError("Model.forward must call fn once and return what it returns")
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in calls[0]]


def get_init_inputs():
    return []
'''

FORWARD = """

class Model(torch.nn.Module):
    def forward(self, *arguments):
        return forward_fn(*arguments)


def get_inputs():
    return _arguments()
"""

BACKWARD = '''

_layout = {}


class _Context:
    """What a torch.autograd.Function writes to in its forward and reads in its backward."""

    def __init__(self, count):
        self.saved_tensors, self.needs_input_grad = (), (True,) * count

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors):
        pass

    def set_materialize_grads(self, value):
        pass


def _all(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_real(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _gradients(arguments, wanted, grads):
    """Autograd's gradients of forward_fn with regard to some of its arguments."""
    arguments = list(arguments)
    for i in wanted:
        arguments[i] = arguments[i].detach().requires_grad_(True)
    with torch.enable_grad():
        outputs = [o for o in _all(forward_fn(*arguments)) if _is_real(o)]
        pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad]
        chosen = [arguments[i] for i in wanted]
        found = torch.autograd.grad([o for o, _ in pairs], chosen, [g for _, g in pairs], allow_unused=True)
    return tuple(torch.zeros_like(a) if g is None else g.detach() for a, g in zip(chosen, found))


def _function():
    kinds = [v for v in list(globals().values()) if isinstance(v, type) and issubclass(v, torch.autograd.Function)]
    return next((k for k in kinds if k is not torch.autograd.Function), None)


def _own_backward(function):
    own = getattr(function, "backward_fn", None) if function is not None else None
    return own or globals().get("backward_fn")


def _recorded(function, arguments, grads):
    """What the Function's backward hands to backward_fn (or has saved, where it calls none), and what comes back.

    That is (arguments, results, one gradient for each argument of forward).
    """
    context = _Context(len(arguments))
    if "setup_context" in vars(function):
        function.setup_context(context, tuple(arguments), function.forward(*arguments))
    else:
        function.forward(context, *arguments)
    real, calls, results = _own_backward(function), [], []

    def record(*given):
        calls.append(list(given))
        wanted = [i for i, a in enumerate(arguments) if _is_real(a)]
        results.extend(_all(real(*given)) if callable(real) else _gradients(arguments, wanted, grads))
        return tuple(results) if len(results) > 1 else results[0]

    inside, outside = vars(function).get("backward_fn", ...), globals().get("backward_fn", ...)
    try:
        if inside is not ...:
            function.backward_fn = staticmethod(record)
        if outside is not ...:
            globals()["backward_fn"] = record
        returned = _all(function.backward(context, *grads))
    finally:
        if inside is not ...:
            function.backward_fn = inside
        if outside is not ...:
            globals()["backward_fn"] = outside
    if len(calls) > 1:
        raise RuntimeError("backward must call backward_fn once")
    if not calls:
        return [*grads, *context.saved_tensors], [r for r in returned if r is not None], returned
    return calls[0], results, returned


def _named(arguments, grads):
    """The arguments of a backward_fn without a Function: by their names, gradients of outputs first come first."""
    rest = list(grads)
    known = dict(zip(inspect.signature(forward_fn).parameters, arguments))
    call = []
    for name in inspect.signature(backward_fn).parameters:
        if name not in known and not rest:
            raise RuntimeError(f"backward_fn asks for {name}, which is no argument of forward_fn")
        call.append(known[name] if name in known else rest.pop(0))
    return call


def _pattern(output):
    """Values that differ along every row: many gradients of constant rows are zero but for rounding."""
    steps = torch.arange(output.numel(), device=output.device).remainder(7).sub(3)
    return steps.to(output.dtype).div(3).reshape(output.shape)


def _call():
    """The arguments of the candidate's backward on fresh inputs; notes what they mean."""
    arguments = _arguments()
    grads = [torch.randn_like(o) + _pattern(o) for o in _all(forward_fn(*arguments)) if _is_real(o)]
    function = _function()
    wanted = [i for i, a in enumerate(arguments) if _is_real(a)]
    if function is not None:
        call, results, returned = _recorded(function, arguments, grads)
        wanted = [next((i for i, g in enumerate(returned) if g is r), None) for r in results if r is not None]
        if None in wanted or not wanted:
            raise RuntimeError("backward must return what backward_fn returns, and None where there is no gradient")
    else:
        call = _named(arguments, grads) if "backward_fn" in globals() else [*grads, *arguments]
    _layout.update(
        places=[next((k for k, v in enumerate(call) if v is a), None) for a in arguments],
        fixed=[(a.shape, a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments],
        wanted=wanted,
        heads=[next((k for k, v in enumerate(call) if v is g), None) for g in grads],
    )
    if "own" not in _layout:
        _layout["own"] = not _has_all(call, _gradients(arguments, wanted, grads))
    return call


def _has_all(call, expected):
    """Whether gradients follow from what backward is called with; else the module's own backward_fn is the reference.

    A softmax's backward, for one, is given the output only.
    """
    if None not in _layout["heads"] and _alike(_by_autograd(call), expected, 1e-5):
        return True
    if not callable(_own_backward(_function())):
        raise RuntimeError("backward is not given all that its gradients need, and there is no backward_fn")
    if not _alike(_own(call), expected, 1e-2):
        raise RuntimeError("backward_fn and autograd of forward_fn disagree on the gradients")
    return False


def _alike(found, expected, tolerance):
    pairs = [(a, b) for a, b in zip(found, expected) if b.numel() and b.device.type != "meta"]
    return len(found) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, tolerance, tolerance * float(b.abs().max())) for a, b in pairs
    )


def _by_autograd(call):
    """Gradients from what backward is called with; tensors that it is not given (a bias) are taken to be zero."""
    arguments = []
    for place, value in zip(_layout["places"], _layout["fixed"]):
        if place is not None:
            arguments.append(call[place])
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], torch.dtype):
            arguments.append(torch.zeros(value[0], dtype=value[1], device=call[0].device))
        else:
            arguments.append(value)
    return _gradients(arguments, _layout["wanted"], [call[k] for k in _layout["heads"]])


def _own(call):
    return [r for r in _all(_own_backward(_function())(*call)) if r is not None]


class Model(torch.nn.Module):
    def forward(self, *call):
        if not _layout:
            _call()
        found = _own(call) if _layout["own"] else _by_autograd(call)
        return found[0] if len(found) == 1 else tuple(found)


def get_inputs():
    with torch.no_grad():
        return _call()
'''
