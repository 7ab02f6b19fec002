# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments: checked against the parameters' C types, then as bytes.

Called by executor before each launch. What may be passed: integers, booleans and floats for scalars; objects with
`__gda_argument__` (queue pairs, memory: gda.nic) for `gda_qp*` and `gda_mr`; for pointers NumPy arrays, other buffers
and DLPack (torch tensors) on the CPU, arrays with `__cuda_array_interface__` (CuPy, torch) on a GPU; ctypes.c_void_p
for a bare address.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gda.errors import ArgumentError
from gda.run.source import KernelText, Parameter

__all__ = ["OwnedAddress", "Packed", "pack"]

# name: (letter for struct, NumPy kind)
_SCALARS: dict[str, tuple[str, str]] = {
    "bool": ("?", "b"), "char": ("b", "i"), "signed char": ("b", "i"), "unsigned char": ("B", "u"),
    "short": ("h", "i"), "unsigned short": ("H", "u"), "int": ("i", "i"), "unsigned int": ("I", "u"),
    "long": ("q", "i"), "unsigned long": ("Q", "u"), "long long": ("q", "i"), "unsigned long long": ("Q", "u"),
    "float": ("f", "f"), "double": ("d", "f"),
    "int8_t": ("b", "i"), "uint8_t": ("B", "u"), "int16_t": ("h", "i"), "uint16_t": ("H", "u"),
    "int32_t": ("i", "i"), "uint32_t": ("I", "u"), "int64_t": ("q", "i"), "uint64_t": ("Q", "u"),
    "size_t": ("Q", "u"), "ptrdiff_t": ("q", "i"), "intptr_t": ("q", "i"), "uintptr_t": ("Q", "u"),
    "gda_status": ("Q", "u"), "gda_ticket": ("Q", "u"), "CUdeviceptr": ("Q", "u"), "clock_t": ("q", "i"),
}  # fmt: skip
_MOST_ALIASES = 16  # of aliases; more is a circle


class OwnedAddress(ctypes.c_void_p):
    """An address that may be passed for a pointer, and the object that must live as long as it is used."""

    def __init__(self, address: int, owner: object) -> None:
        super().__init__(address)
        self.owner = owner


@dataclass
class Packed:
    """Arguments as a kernel takes them: each one's bytes, and the objects that must live until the launch ends."""

    values: list[bytes]
    alive: list[object] = field(default_factory=list)


@dataclass(frozen=True)
class _Place:
    """Where an argument goes, for messages."""

    kernel: str
    number: int
    parameter: Parameter

    def refuse(self, why: str, advice: str = "") -> ArgumentError:
        return ArgumentError(f"kernel {self.kernel}, argument {self.number} ({self.parameter.text}): {why}", advice)


def _canonical(name: str) -> str:
    """`long unsigned int` and `unsigned long` are one type."""
    name = name.removeprefix("std::").removeprefix("::")
    words = name.split()
    if not words or not set(words) <= {"unsigned", "signed", "int", "long", "short", "char"}:
        return name
    if "char" in words:
        return " ".join(word for word in ("unsigned", "signed", "char") if word in words)
    size = "short" if "short" in words else " ".join(["long"] * words.count("long"))
    return " ".join(filter(None, ("unsigned" if "unsigned" in words else "", size or "int")))


def _resolve(parameter: Parameter, aliases: Mapping[str, Parameter]) -> Parameter:
    """The parameter with the aliases of its source replaced."""
    for _ in range(_MOST_ALIASES):
        name = _canonical(parameter.type)
        if name in _SCALARS or name not in aliases:
            return Parameter(parameter.name, name, parameter.pointers, parameter.const)
        alias = aliases[name]
        const = alias.const if alias.pointers else parameter.const
        parameter = Parameter(parameter.name, alias.type, parameter.pointers + alias.pointers, const)
    return parameter


def pack(
    kernel: KernelText,
    arguments: Sequence[object],
    target: str,
    aliases: Mapping[str, Parameter],
    sizes: Sequence[int] | None = None,
) -> Packed:
    """Check the arguments of one launch and turn them into bytes.

    `sizes`: bytes of each parameter as the compiler says, where it is known (the CPU). Raises ArgumentError that names
    kernel, argument and parameter.
    """
    if len(arguments) != len(kernel.parameters):
        wanted = ", ".join(parameter.text for parameter in kernel.parameters)
        raise ArgumentError(
            f"kernel {kernel.name} takes {len(kernel.parameters)} arguments ({wanted}), not {len(arguments)}",
            "a last parameter `gda_status* status` is filled in by the launch",
        )
    packed = Packed([])
    for number, (parameter, value) in enumerate(zip(kernel.parameters, arguments, strict=True)):
        place = _Place(kernel.name, number, parameter)
        known = _resolve(parameter, aliases)
        size = sizes[number] if sizes else None
        data = _one(place, known, value, target, size)
        if size is not None and len(data) != size:
            raise place.refuse(
                f"{len(data)} bytes were made of it, the compiler says that the parameter has {size}",
                "the parameter's type could not be read from the text: use a plain type, or pass the bytes",
            )
        packed.values.append(data)
        packed.alive.append(value)
    return packed


def _one(place: _Place, known: Parameter, value: Any, target: str, size: int | None) -> bytes:
    if value is None:
        raise place.refuse("None", "pass an object; for a null pointer say ctypes.c_void_p(None)")
    if hasattr(value, "__gda_argument__"):
        name, data = value.__gda_argument__(target)
        wanted = known.type + "*" * known.pointers
        if name.replace(" ", "") != wanted:
            raise place.refuse(
                f"a {type(value).__name__} is a {name}, the parameter a {wanted}",
                f"declare the parameter as `{name} {known.name or 'name'}`",
            )
        return bytes(data)
    if known.pointers:
        return _pointer(place, known, value, target).to_bytes(8, "little")
    if known.type in _SCALARS:
        return _scalar(place, known.type, value)
    return _structure(place, known, value, size)


def _scalar(place: _Place, name: str, value: Any) -> bytes:
    letter, kind = _SCALARS[name]
    if isinstance(value, np.generic):
        value = value.item()
    if kind == "f":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise place.refuse(f"{value!r} is no number")
        try:
            return struct.pack("<" + letter, value)
        except OverflowError:
            raise place.refuse(f"{value!r} does not fit a {name}") from None
    if isinstance(value, bool) and kind == "b":
        return struct.pack("<?", value)
    if not isinstance(value, int) or kind == "b":
        wanted = "True or False" if kind == "b" else "an int"
        raise place.refuse(f"{value!r} ({type(value).__name__}) is not {wanted}")
    bits = 8 * struct.calcsize(letter)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise place.refuse(f"{value} is outside {low}..{high}")
    return struct.pack("<" + letter, value)


def _structure(place: _Place, known: Parameter, value: Any, size: int | None) -> bytes:
    if isinstance(value, (bytes, bytearray, np.void, ctypes.Structure)):
        data = value.tobytes() if isinstance(value, np.void) else bytes(value)
        if size is not None and len(data) != size:
            raise place.refuse(f"a {known.type} has {size} bytes, not {len(data)}")
        return data
    raise place.refuse(
        f"a {type(value).__name__} cannot be a {known.type}",
        "pass an object of gda.nic (Memory for gda_mr, QueuePair for gda_qp*), or a struct's bytes",
    )


def _pointer(place: _Place, known: Parameter, value: Any, target: str) -> int:
    """Address of an array that the kernel may use."""
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    if isinstance(value, (bool, int, float, str)):
        raise place.refuse(
            f"{value!r} is no array", "pass an array, or ctypes.c_void_p(address) if you mean a bare address"
        )
    described = _asked(place, value, lambda: getattr(value, "__cuda_array_interface__", None))
    if described is not None:
        if target != "gpu":
            raise place.refuse("the array lies in GPU memory, the kernel runs on the CPU", "pass a NumPy array")
        address, read_only = described["data"]
        dtype = np.dtype(described["typestr"])
        shape, strides = described["shape"], described.get("strides")
    else:
        if target != "host":
            raise place.refuse(
                f"a {type(value).__name__} lies in CPU memory, the kernel runs on a GPU",
                "pass a CuPy array (cupy.asarray) or a torch tensor on the GPU",
            )
        array, read_only = _on_the_cpu(place, value)
        address = array.ctypes.data
        dtype, shape, strides = array.dtype, array.shape, array.strides
    _check_layout(place, dtype.itemsize, shape, strides)
    _check_elements(place, known, dtype, read_only)
    return int(address)


def _asked(place: _Place, value: Any, question: Callable[[], Any]) -> Any:
    """What an array says of itself; torch refuses for tensors that take part in automatic differentiation."""
    try:
        return question()
    except (BufferError, RuntimeError, TypeError) as error:
        said = str(error).split("\n", maxsplit=1)[0]
        raise place.refuse(
            f"a {type(value).__name__} does not say where it lies: {said}",
            "of a tensor that requires a gradient pass tensor.detach(); of one of a type that NumPy lacks (bfloat16) "
            "pass tensor.view(torch.int16)",
        ) from error


def _on_the_cpu(place: _Place, value: Any) -> tuple[np.ndarray[Any, Any], bool]:
    """An array that shows it, and whether it is read-only."""
    array: np.ndarray[Any, Any]
    if isinstance(value, np.ndarray):
        return value, not value.flags.writeable
    try:
        array = np.asarray(memoryview(value))
    except (TypeError, ValueError):
        if not hasattr(value, "__dlpack__"):
            raise place.refuse(f"a {type(value).__name__} is no array") from None
        # What NumPy makes of it was always read-only before 2.1, and says nothing of the tensor.
        return _asked(place, value, lambda: np.from_dlpack(value)), False
    return array, not array.flags.writeable


def _check_layout(place: _Place, item_bytes: int, shape: Sequence[int], strides: Any) -> None:
    expected = item_bytes
    for length, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if length > 1 and stride != expected:
            raise place.refuse("the array is not contiguous", "pass numpy.ascontiguousarray(array)")
        expected *= length


def _check_elements(place: _Place, known: Parameter, dtype: np.dtype[Any], read_only: bool) -> None:
    if read_only and not known.const:
        raise place.refuse("the array is read-only", f"declare the parameter as `const {known.type}*`, or pass a copy")
    if known.pointers != 1 or known.type not in _SCALARS:
        return  # void*, or a struct's: only the user knows
    letter, kind = _SCALARS[known.type]
    if dtype.itemsize != struct.calcsize(letter) or not _same_kind(dtype.kind, kind, dtype.itemsize):
        raise place.refuse(
            f"the array has elements of {dtype}, the parameter points to {known.type}",
            f"make the array with dtype={_numpy_name(letter, kind)}",
        )


def _same_kind(array: str, parameter: str, size: int) -> bool:
    """Signed and unsigned integers may stand for each other; single bytes are just bytes."""
    if size == 1:
        return array in "iubVSc"
    return array == parameter or {array, parameter} <= {"i", "u"} or array == "V"


def _numpy_name(letter: str, kind: str) -> str:
    bits = 8 * struct.calcsize(letter)
    return {"b": "bool", "i": f"int{bits}", "u": f"uint{bits}", "f": f"float{bits}"}[kind]
