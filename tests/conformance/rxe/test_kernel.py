# SPDX-License-Identifier: Apache-2.0
"""What a guest boots is put together right; no guest is booted here."""

from __future__ import annotations

import lzma

import pytest

from . import kernel


def module(*needs: str) -> bytes:
    return b"\x7fELF...\0depends=" + ",".join(needs).encode() + b"\0name=x\0"


def test_modules_come_behind_what_they_depend_on() -> None:
    modules = {
        "rdma_rxe": module("ib_core", "udp-tunnel"), "ib_core": module(), "udp_tunnel": module("built_in"),
        "crc32_generic": module(), "unrelated": module(),
    }  # fmt: skip
    order = kernel._in_order(modules)
    assert order == ["crc32_generic", "ib_core", "udp_tunnel", "rdma_rxe"]


def test_a_kernel_without_soft_roce_is_refused() -> None:
    with pytest.raises(kernel.NotAvailableError, match=r"rdma_rxe\.ko"):
        kernel._in_order({"overlay": module()})


def test_the_image_inside_a_bzimage_is_found() -> None:
    packed = lzma.compress(b"\x7fELF and more")
    image = bytearray(2048)
    image[0x1F1] = 1  # sectors of setup code
    image[0x248:0x24C] = (100).to_bytes(4, "little")
    image[0x24C:0x250] = len(packed).to_bytes(4, "little")
    image[1024 + 100 : 1024 + 100 + len(packed)] = packed
    assert kernel._uncompressed(bytes(image)) == b"\x7fELF and more"
    with pytest.raises(kernel.NotAvailableError, match="unknown way"):
        kernel._uncompressed(bytes(2048))


def test_archive_has_names_data_and_an_end() -> None:
    archive = kernel._newc([("init", 0o100755, b"#!/bin/sh\n")])
    assert archive.startswith(b"070701") and len(archive) % 4 == 0
    assert int(archive[54:62], 16) == len(b"#!/bin/sh\n")
    assert archive[110:115] == b"init\0" and archive[116:126] == b"#!/bin/sh\n"
    assert archive.rstrip(b"\0").endswith(b"TRAILER!!!")
