# SPDX-License-Identifier: Apache-2.0
"""Golden bytes: read from golden_*.txt, and how those files were made.

golden_queue.txt is the output of golden_queue.c (rdma-core's infiniband/mlx5dv.h). golden_command.txt is the output
of a program that sets every field with rdma-core's DEVX_SET in the structs of Linux's mlx5_ifc.h; the values are made
from the fields' names. golden_packet.txt was written by hand from the InfiniBand specification's figures.
`python -m tests.formats.golden` writes the first two again; a test does so too and compares.
"""

from __future__ import annotations

import sys
import textwrap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gda import formats
from gda.formats import Field, Struct

from . import compilers, linux_ifc

HERE = Path(__file__).parent
LONG_BYTES = 64  # of a long byte string only this much is not zero


@dataclass(frozen=True)
class Record:
    """A format, the fields that were set (by path), and the bytes that the other party wrote."""

    struct: Struct
    values: dict[str, int | bytes]
    data: bytes

    def nested(self) -> dict[str, Any]:
        """All fields of the format as `unpack` returns them."""
        result: dict[str, Any] = {}
        for path, field in paths(self.struct):
            *parents, name = path.split(".")
            place = result
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = self.values.get(path, bytes(field.count_bytes) if field.count_bytes else 0)
        return result


def paths(struct: Struct, prefix: str = "") -> list[tuple[str, Field]]:
    """Every named field, also of nested formats, by dotted path; nested formats themselves are left out."""
    found: list[tuple[str, Field]] = []
    for name, field in struct.fields.items():
        if field.struct is not None:
            found += paths(field.struct, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", field))
    return found


def records(file: str, header: str) -> list[Any]:
    """Records of golden_FILE.txt whose formats are declared in `header`, as pytest parameters."""
    found = []
    for number, block in enumerate((HERE / f"golden_{file}.txt").read_text().strip().split("\n\n")):
        name, *lines = block.splitlines()
        struct = formats.structs[name]
        if not struct.source.startswith(header + ":"):
            continue
        data = bytearray(struct.bytes)
        values: dict[str, int | bytes] = {}
        for line in lines:
            if ": " in line:
                offset, hexadecimal = line.split(": ")
                row = bytes.fromhex(hexadecimal)
                data[int(offset, 16) : int(offset, 16) + len(row)] = row
                continue
            for item in line.split():
                path, text = item.split("=")
                if text.startswith("bytes:"):
                    size = dict(paths(struct))[path].count_bytes
                    values[path] = bytes.fromhex(text[6:]).ljust(size, b"\0")
                else:
                    values[path] = int(text, 0)
        assert len(data) == struct.bytes, f"{name}: bytes past the format's end"
        found.append(pytest.param(Record(struct, values, bytes(data)), id=f"{name}-{number}"))
    return found


def write_queue(directory: Path) -> str:
    """Compile and run golden_queue.c."""
    compiler = compilers.with_header("cc", "infiniband/mlx5dv.h", "libibverbs-dev")
    return compilers.run(compilers.build(compiler, HERE / "golden_queue.c", directory))


def write_command(directory: Path, only: dict[str, set[str]] | None = None) -> str:
    """Compile and run a program that sets each field that Linux knows in each command struct.

    `only` (format -> paths) leaves out what a newer kernel has learned since the file was written.
    """
    compiler = compilers.with_header("cc", "infiniband/mlx5dv.h", "libibverbs-dev")
    ifc = linux_ifc.directory() / "linux/mlx5/mlx5_ifc.h"
    lines = [
        "#include <stdint.h>",
        "#include <stdio.h>",
        "#include <string.h>",
        "typedef uint8_t u8;",
        "#define BIT(n) (1U << (n))",
        "#define BIT_ULL(n) (1ULL << (n))",
        "#define DECLARE_FLEX_ARRAY(type, name) type name[0]",
        f'#include "{ifc}"',
        "#include <infiniband/mlx5dv.h>",
        _EMIT,
        "static unsigned char p[65536];",
        "int main(void) {",
    ]
    kernel = linux_ifc.Kernel()
    for struct in formats.structs.values():
        if struct.source.startswith("command.h") and struct.name in kernel:
            wanted = [path for path, _ in paths(struct) if only is None or path in only.get(struct.name, ())]
            lines += _statements(struct, [path for path in wanted if _known(struct, path, kernel)])
    source = directory / "golden_command.c"
    source.write_text("\n".join([*lines, "return 0; }", ""]))
    return compilers.run(compilers.build(compiler, source, directory))


_EMIT = r"""
static void emit(const char *format, const char *fields, const unsigned char *p, size_t bytes) {
    printf("%s\n%s\n", format, fields);
    for (size_t at = 0; at < bytes; at += 32) {
        size_t end = at + 32 < bytes ? at + 32 : bytes, any = 0;
        for (size_t i = at; i < end; i++) any |= p[i];
        if (!any) continue;
        printf("%04zx: ", at);
        for (size_t i = at; i < end; i++) printf("%02x", p[i]);
        printf("\n");
    }
    printf("\n");
}
"""


def _statements(struct: Struct, wanted: list[str]) -> list[str]:
    # Only names come from our declaration; places and widths come from the kernel's, through DEVX_SET.
    if not wanted:
        return []
    lines, shown = ["memset(p, 0, sizeof p);"], []
    for path in wanted:
        field = dict(paths(struct))[path]
        seed = f"{struct.name}.{path}".encode()
        if field.count_bytes:
            pattern = bytes(zlib.crc32(seed + bytes([i])) & 0xFF for i in range(min(field.count_bytes, LONG_BYTES)))
            array = ", ".join(map(str, pattern))
            lines.append(
                f"{{ static const u8 v[] = {{{array}}}; memcpy(DEVX_ADDR_OF({struct.name}, p, {path}), v, sizeof v); }}"
            )
            shown.append(f"{path}=bytes:{pattern.hex()}")
            continue
        value = zlib.crc32(seed) << 32 | zlib.crc32(b"low" + seed)
        value = value & ((1 << field.width_bits) - 1) or 1
        macro = "DEVX_SET64" if field.width_bits == 64 else "DEVX_SET"
        lines.append(f"{macro}({struct.name}, p, {path}, {value:#x}{'ULL' if field.width_bits == 64 else ''});")
        shown.append(f"{path}={value:#x}")
    text = "\\n".join(textwrap.wrap(" ".join(shown), 118, break_long_words=False, break_on_hyphens=False))
    size = f"sizeof(struct mlx5_ifc_{struct.name}_bits) / 8"
    return [*lines, f'emit("{struct.name}", "{text}", p, {size});']


def _known(struct: Struct, path: str, kernel: linux_ifc.Kernel) -> bool:
    name, _, rest = path.partition(".")
    if name not in kernel.struct(struct.name)[1] or name in linux_ifc.VARIANTS.get(struct.name, {}):
        return False
    inner = struct.fields[name].struct
    return inner is None or _known(inner, rest, kernel)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        (HERE / "golden_queue.txt").write_text(write_queue(Path(scratch)))
        (HERE / "golden_command.txt").write_text(write_command(Path(scratch)))
    sys.stdout.write("written\n")
