"""Writes a policy, including its filter, as an ONNX model for runtimes in other languages.

Without a filter the model maps `observation` to `action`. With one it also maps `state` to
`next_state`; at the start of an episode the state is NaN everywhere:

    state = np.full(session.get_inputs()[1].shape, np.nan)
    action, state = session.run(None, {"observation": observation, "state": state})

A graph cannot raise an exception. Where `Policy` raises one, every number of the action is NaN and
the state is returned unchanged.

The graph is traced: the functions of the policy are called with a `Symbol` in place of an array,
and the symbol records the operations. The model computes in double precision, as `Policy` does,
except for erf, which ONNX Runtime implements in single precision only.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import LIMIT, sane
from .greedy import erf

if TYPE_CHECKING:
    from . import Policy

TOLD = (
    "Maps an observation, and with a filter a state, to the action and the next state. At the start of an episode the "
    "state is NaN everywhere. For an invalid observation the action is NaN and the state is unchanged."
)
OPSET, IR = 17, 8  # versions of 2022, which old runtimes can read
OPERATORS = {
    np.add: "Add", np.subtract: "Sub", np.multiply: "Mul", np.true_divide: "Div", np.matmul: "MatMul", np.power: "Pow",
    np.maximum: "Max", np.minimum: "Min", np.negative: "Neg", np.absolute: "Abs", np.sqrt: "Sqrt", np.exp: "Exp",
    np.log: "Log", np.tanh: "Tanh", np.isnan: "IsNaN", np.invert: "Not", np.bitwise_and: "And", np.bitwise_or: "Or",
    np.less: "Less", np.less_equal: "LessOrEqual", np.greater: "Greater",
}  # fmt: skip


def write(policy: "Policy", path: Path | str) -> Path:
    """Writes the model to a file and returns its path."""
    content = model(policy).SerializeToString()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.writing")  # renamed when complete
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def model(policy: "Policy") -> Any:
    """Returns the policy as an `onnx.ModelProto`."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("onnx is not installed: run pip install 'moca-rl[onnx]'", name="onnx") from error
    graph, size = Graph(), policy.facts["observation_size"]
    inputs = {"observation": np.zeros(size)}
    if policy._filter:
        inputs["state"] = np.zeros(size + size**2 + len(policy.action_low))
    symbols = {name: Symbol(graph, name, like) for name, like in inputs.items()}
    with np.errstate(all="ignore"):
        outputs = _step(policy, **symbols)
    made = onnx.helper.make_model(
        graph.finished(inputs, outputs),
        producer_name="moca",
        producer_version=policy.facts.get("version", ""),
        doc_string=TOLD,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR,
    )
    onnx.helper.set_model_props(made, {"facts": json.dumps(policy.facts)})
    onnx.checker.check_model(made, full_check=True)
    return made


def _step(policy: "Policy", observation: Any, state: Any = None) -> dict[str, Any]:
    """Returns the action and the next state, as `Policy.__call__` does, but without branches."""
    size, possible = len(observation), np.abs(observation) <= LIMIT
    believed, known = observation, possible.all()
    if policy._filter:
        before, covariance = state[:size], state[size : size + size**2].reshape(size, size)
        taken = policy._inside(state[size + size**2 :])
        followed = policy._filter.follow((before, covariance), taken, observation)
        goes_on, started = sane(*followed), policy._filter.start(observation)
        believed, covariance = (np.where(goes_on, *each) for each in zip(followed, started, strict=True))
        known = (possible | np.isnan(observation)).all() & sane(believed, covariance)
    inside = policy._greedy(believed[None])[0]
    known = known & np.isfinite(inside).all()
    action = policy._in_bounds(inside)
    outputs = {"action": np.where(known, action, np.nan)}
    if policy._filter:
        now = np.concatenate([believed, covariance.reshape(size**2), action.astype(np.float64)])
        outputs["next_state"] = np.where(known, now, state)
    return outputs


class Graph:
    """The nodes of a graph, in order, and its constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[tuple, tuple[str, np.ndarray]] = {}
        self.names = 0

    def name(self) -> str:
        """Returns a new name."""
        self.names += 1
        return f"v{self.names}"

    def constant(self, array: np.ndarray) -> str:
        """Returns the name of a constant; equal constants share one."""
        key = (array.dtype.name, array.shape, array.tobytes())
        return self.constants.setdefault(key, (f"c{len(self.constants)}", array))[0]

    def symbol(self, operator: str, inputs: list[str], like: Any, **attributes: Any) -> "Symbol":
        """Adds a node and returns its output, which has the shape and the dtype of `like`."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [name := self.name()], **attributes))
        return Symbol(self, name, np.asarray(like))

    def within(self, nodes: list[Any], function: Callable[[], "Symbol"]) -> "Symbol":
        """Calls `function` and returns its result, adding its nodes to `nodes`."""
        held, self.nodes = self.nodes, nodes
        try:
            return function()
        finally:
            self.nodes = held

    def finished(self, inputs: dict[str, np.ndarray], outputs: dict[str, "Symbol"]) -> Any:
        """Returns the graph from these inputs to these outputs, without unused nodes."""
        from onnx import helper, numpy_helper

        for name, symbol in outputs.items():
            self.nodes.append(helper.make_node("Identity", [symbol.name], [name]))
        nodes: list[Any] = []
        needed = set(outputs)
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= _used(node)
        return helper.make_graph(
            nodes,
            "policy",
            [_described(name, like) for name, like in inputs.items()],
            [_described(name, symbol.like) for name, symbol in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self.constants.values() if name in needed],
        )


def _used(node: Any) -> set[str]:
    """Returns the names that a node uses, including those in the body of a loop."""
    inner = (each for attribute in node.attribute for each in attribute.g.node)
    return set(node.input).union(*map(_used, inner))


def _described(name: str, like: np.ndarray) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(like.dtype), like.shape)


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """A value in the graph, which NumPy functions accept as an array.

    `like` is an array with its shape and dtype.
    """

    def __init__(self, graph: Graph, name: str, like: np.ndarray) -> None:
        self.graph, self.name, self.like = graph, name, like
        self.shape, self.ndim, self.dtype = like.shape, like.ndim, like.dtype

    def __len__(self) -> int:
        return len(self.like)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        if ufunc is np.logaddexp:
            return np.maximum(*inputs) + np.log(1 + np.exp(-np.abs(np.subtract(*inputs))))
        if ufunc is np.isfinite:
            return np.abs(self) <= np.finfo(self.dtype).max
        if ufunc is erf:
            narrow = self.astype(np.float32)
            return self.graph.symbol("Erf", [narrow.name], narrow.like).astype(np.float64)
        like = ufunc(*(getattr(each, "like", each) for each in inputs))
        return self.graph.symbol(OPERATORS[ufunc], self._named(*inputs), like)

    def __array_function__(self, function: Callable, types: Any, arguments: tuple, options: dict[str, Any]) -> Any:
        return FUNCTIONS[function](*arguments, **options)

    def _named(self, *inputs: Any) -> list[str]:
        """Returns the names of values, all cast to the dtype that NumPy would compute in."""
        kind = np.result_type(*(each.dtype if hasattr(each, "dtype") else each for each in inputs))
        return [
            each.astype(kind).name if isinstance(each, Symbol) else self.graph.constant(np.asarray(each, kind))
            for each in inputs
        ]

    def _moved(self, move: Callable[[np.ndarray], np.ndarray]) -> "Symbol":
        """Returns the values after `move`, a function that selects and rearranges elements."""
        places = move(np.arange(self.like.size).reshape(self.shape))
        flat = self.graph.symbol("Reshape", [self.name, self.graph.constant(np.array([-1]))], self.like.ravel())
        return self.graph.symbol("Gather", [flat.name, self.graph.constant(places)], self.like.ravel()[places])

    def __getitem__(self, index: Any) -> "Symbol":
        return self._moved(lambda array: array[index])

    def reshape(self, *shape: int) -> "Symbol":
        return self.graph.symbol("Reshape", [self.name, self.graph.constant(np.array(shape))], self.like.reshape(shape))

    def swapaxes(self, one: int, other: int) -> "Symbol":
        return self._moved(lambda array: array.swapaxes(one, other))

    @property
    def T(self) -> "Symbol":
        return self._moved(lambda array: array.T)

    def astype(self, kind: Any) -> "Symbol":
        from onnx import helper

        if self.dtype == kind:
            return self
        to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self.graph.symbol("Cast", [self.name], self.like.astype(kind), to=to)

    def sum(self, axis: int | None = None) -> "Symbol":
        axes = np.arange(self.ndim) if axis is None else np.array([axis])
        return self.graph.symbol(
            "ReduceSum", [self.name, self.graph.constant(axes)], self.like.sum(axis=axis), keepdims=0
        )

    def mean(self, axis: int) -> "Symbol":
        return self.sum(axis) / float(self.shape[axis])

    def all(self) -> "Symbol":
        return (~self).astype(np.float64).sum() < 0.5

    def repeated(self, times: int, step: Callable[[Any], "Symbol"]) -> "Symbol":
        """Returns the value after applying `step` `times` times, as a loop in the graph."""
        from onnx import TensorProto, helper

        nodes: list[Any] = []
        count, go_on, carried, again = (self.graph.name() for _ in range(4))
        after = self.graph.within(nodes, lambda: step(Symbol(self.graph, carried, self.like)))
        nodes.append(helper.make_node("Identity", [go_on], [again]))
        index = helper.make_tensor_value_info(count, TensorProto.INT64, [])
        true = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in (go_on, again)]
        inputs = [index, true[0], _described(carried, self.like)]
        body = helper.make_graph(nodes, "step", inputs, [true[1], _described(after.name, after.like)])
        often, yes = (self.graph.constant(np.array(each)) for each in (times, True))
        return self.graph.symbol("Loop", [often, yes, self.name], self.like, body=body)


def _where(condition: Any, yes: Any, no: Any) -> Symbol:
    symbol = next(each for each in (condition, yes, no) if isinstance(each, Symbol))
    names = symbol._named(condition) + symbol._named(yes, no)
    return symbol.graph.symbol(
        "Where", names, np.where(*(getattr(each, "like", each) for each in (condition, yes, no)))
    )


def _concatenate(parts: list[Any], axis: int = 0) -> Symbol:
    symbol = next(each for each in parts if isinstance(each, Symbol))
    parts = [each for each in parts if each.shape[axis]]
    like = np.concatenate([getattr(each, "like", each) for each in parts], axis)
    return symbol.graph.symbol("Concat", symbol._named(*parts), like, axis=axis)


def _solve(matrices: Symbol, right: Symbol) -> Any:
    """Returns the solution by Gauss-Jordan elimination, for positive definite matrices."""
    size = matrices.shape[-1]
    both = _concatenate([matrices, right], axis=2)
    for i in range(size):
        row = both[:, i : i + 1] / both[:, i : i + 1, i : i + 1]
        both = _where(np.arange(size)[:, None] == i, row, both - both[:, :, i : i + 1] * row)
    return both[:, :, size:]


FUNCTIONS: dict[Callable, Callable[..., Any]] = {
    np.where: _where,
    np.concatenate: _concatenate,
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
    np.split: lambda x, parts, axis: [
        x._moved(lambda array, i=i: np.split(array, parts, axis)[i]) for i in range(parts)
    ],
    np.linalg.solve: _solve,
}
