"""Asking the processor for memory before it is used.

The kernel walks one stream per rank and array, more than a processor follows by itself: without this, half of its time
is spent waiting for memory, and more when neighbours fill the caches. numba does not notice when this file changes:
delete the cache then.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _prefetch(typing_context: Any, address: Any) -> Any:
    """The type of ``prefetch`` and what generates it, as numba wants them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        read, keep, data = number(0), number(3), number(1)
        builder.call(function, [pointer, read, keep, data])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


prefetch: Any = intrinsic(_prefetch)
"""``prefetch(address)`` in compiled code brings a cache line near; any address is harmless."""
