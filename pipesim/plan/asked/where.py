"""The conditions of a grid, ``t * p * c <= gpus``: arithmetic and comparisons over columns, read with ``ast``, never run."""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.checks import Invalid

Mask = NDArray[np.bool_]

LONGEST = 300
"""Characters of a condition; longer ones are refused."""

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_ORDERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_WORDS = {"true": True, "false": False}
_KINDS = {"f": "a number", "U": "a text", "b": "true or false"}


def holds(condition: str, names: Mapping[str, Any]) -> Mask:
    """Where the condition holds: shape () if it uses no array.

    ``names`` are arrays, or single values, of numbers, texts or flags; a dotted name is looked up as a whole. Numbers are
    compared as float64, exact up to 2**53. Raises ``Invalid`` with the condition and the word in it that is wrong.
    """
    try:
        with np.errstate(all="raise", under="ignore"):
            found = _value(tree(condition), names)
    except FloatingPointError as error:
        raise Invalid([f"grid.where: {condition!r} cannot be computed for some combination: {error}."]) from None
    except _Wrong as error:
        raise Invalid([f"grid.where: {condition!r}: {error}"]) from None
    if found.dtype.kind != "b":
        raise Invalid(
            [f"grid.where: {condition!r} is {_KINDS[found.dtype.kind]}, no condition. Compare it with something."]
        )
    return found


def used(condition: str) -> set[str]:
    """The names that a condition uses."""
    found = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name | ast.Attribute):
            found.add(_dotted(node))
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    try:
        visit(tree(condition))
    except _Wrong as error:
        raise Invalid([f"grid.where: {condition!r}: {error}"]) from None
    return found - set(_WORDS) - {"True", "False"}


def tree(condition: str) -> ast.expr:
    """Raises ``Invalid`` for a text that is no expression."""
    if len(condition) > LONGEST:
        raise Invalid(
            [f"grid.where: {condition[:40]!r}… has {len(condition):,} characters; at most {LONGEST:,} are read."]
        )
    try:
        return ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else "it cannot be read"
        nearest = "Nearest: a comparison such as t <= gpus_per_node."
        raise Invalid([f"grid.where: {condition!r} is no condition: {why}. {nearest}"]) from None


class _Wrong(Exception):
    """What is wrong with a part of a condition."""


def _value(node: ast.expr, names: Mapping[str, Any]) -> NDArray[Any]:
    match node:
        case ast.Name() | ast.Attribute():
            return _named(_dotted(node), names)
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return _column(constant, repr(constant))
        case ast.BoolOp():
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return np.asarray(combine.reduce(np.broadcast_arrays(*(_kind(each, names, "b") for each in node.values))))
        case ast.UnaryOp(op=ast.Not()):
            return np.asarray(~_kind(node.operand, names, "b"))
        case ast.UnaryOp(op=ast.USub()):
            return np.asarray(-_kind(node.operand, names, "f"))
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            return np.asarray(_ARITHMETIC[type(node.op)](_kind(node.left, names, "f"), _kind(node.right, names, "f")))
        case ast.Compare():
            sides = [node.left, *node.comparators]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*(_compared(*pair, names) for pair in pairs))))
    raise _no_part(node)


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, names: Mapping[str, Any]) -> NDArray[Any]:
    if type(op) in _ORDERS:
        return np.asarray(_ORDERS[type(op)](_kind(left, names, "f"), _kind(right, names, "f")))
    value = _value(left, names)
    if isinstance(op, ast.Eq | ast.NotEq):
        same = np.asarray(value == _kind(right, names, value.dtype.kind))
        return same if isinstance(op, ast.Eq) else ~same
    if not isinstance(op, ast.In | ast.NotIn) or not isinstance(right, ast.List | ast.Tuple):
        raise _Wrong(f"{ast.unparse(right)} must be a list, such as [1, 2], after in.")
    among = np.zeros(value.shape, bool)
    for each in right.elts:
        among = among | (value == _kind(each, names, value.dtype.kind))
    return among if isinstance(op, ast.In) else ~among


def _kind(node: ast.expr, names: Mapping[str, Any], kind: str) -> NDArray[Any]:
    value = _value(node, names)
    if value.dtype.kind != kind:
        raise _Wrong(f"{ast.unparse(node)} is {_KINDS[value.dtype.kind]}, where {_KINDS[kind]} is needed.")
    return value


def _named(name: str, names: Mapping[str, Any]) -> NDArray[Any]:
    if name.lower() in _WORDS:
        return np.asarray(_WORDS[name.lower()])
    if name not in names:
        near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
        nearest = f"Nearest: {' or '.join(near)}." if near else f"There are: {', '.join(sorted(names))}."
        raise _Wrong(f"{name} is no name here; a text stands in quotes. {nearest}")
    return _column(names[name], name)


def _column(values: Any, name: str) -> NDArray[Any]:
    found = np.asarray(values)
    if found.dtype.kind in "iuf":
        return found.astype(np.float64)
    try:
        return found if found.dtype.kind in "Ub" else found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _Wrong(f"{name} is neither a number nor a text in every combination.") from None


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise _no_part(node)


def _no_part(node: ast.expr) -> _Wrong:
    return _Wrong(
        f"{ast.unparse(node)} cannot stand here; there are names, numbers, texts, lists after in, + - * / // % **, "
        "comparisons, and, or, not."
    )
