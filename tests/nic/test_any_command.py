# SPDX-License-Identifier: Apache-2.0
"""Well-formed firmware commands with any values in their fields: each is answered, with reasons, and nothing stays.

Fields start from values that work, since random ones would all be refused by the first check; some are then replaced.
What a command of any length and content does is for the fuzzer (tests/fuzz/command.cc).
"""

from __future__ import annotations

import contextlib
import errno
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gda.nic
from gda import _verbs, attach, formats
from gda.nic.connection import Path, init_fields, rtr_fields, rts_fields

# Commands, and the field with the number of the object that they are about ("" where they make one or need none).
CREATE = ("create_cq", "create_qp", "create_mkey", "create_rmp")
UPWARDS = ("rst2init_qp", "init2rtr_qp", "rtr2rts_qp")
QUEUE_PAIR = (*UPWARDS, "init2init_qp", "rts2rts_qp", "qp_2err", "qp_2rst", "query_qp")
COMPLETION_QUEUE = ("modify_cq", "query_cq")
GENERAL = ("query_hca_cap", "query_roce_address", "query_lag")
OPCODES = {"qp_2err": "2ERR_QP", "qp_2rst": "2RST_QP"}
SETTINGS = settings(max_examples=150, deadline=None)
pytestmark = pytest.mark.gda_complaints(may=("command-refused", "more"))


def opcode(name: str) -> int:
    return int(formats.constants[f"MLX5_CMD_OP_{OPCODES.get(name, name.upper())}"])


def leaves(layout: formats.Struct, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Path and bits of every field of a format, nested ones too."""
    for name, field in layout.fields.items():
        if field.struct is not None:
            yield from leaves(field.struct, f"{prefix}{name}.")
        elif field.is_number and f"{prefix}{name}" not in ("opcode", "uid"):
            yield prefix + name, field.width_bits


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Any number that fits, and often one at an edge."""
    top = (1 << bits) - 1
    edges = sorted({0, 1, top, top // 2, top - top // 2, min(16, top), min(64, top), min(4096, top)})
    return st.sampled_from(edges) | st.integers(0, top)


def changes(name: str) -> st.SearchStrategy[dict[str, int]]:
    """Up to six fields of a command with other values."""
    one = st.sampled_from(list(leaves(formats.structs[f"{name}_in"]))).flatmap(
        lambda leaf: st.tuples(st.just(leaf[0]), numbers(leaf[1]))
    )
    return st.lists(one, max_size=6).map(dict)


commands = {names: st.sampled_from(names).flatmap(lambda n: st.tuples(st.just(n), changes(n))) for names in (
    CREATE, QUEUE_PAIR, COMPLETION_QUEUE, GENERAL,
)}  # fmt: skip


class Bench:
    """A NIC with memory for queues, and the values of commands that work on it."""

    def __init__(self) -> None:
        self.software = attach.software_nic()
        self.nic = gda.nic.open()
        self.queue, self.other = self.nic.loopback_pair(completion="ring", depth=16)
        context, rings = self.nic.context, self.queue._rings
        umem, page = rings.umem_id("sq"), self.queue._carrier.page.page_id
        record = {"dbr_umem_valid": 1, "dbr_umem_id": rings.umem_id("records"), "dbr_addr": rings.offset("records")}
        place = {queue: {f"{queue}_umem_valid": 1, f"{queue}_umem_id": umem} for queue in ("wq", "cq")}
        self.context = context
        self.working: dict[str, dict[str, Any]] = {
            "create_cq": {
                "cq_context": {"log_cq_size": 2, "uar_page": page, "c_eqn_or_apu_element": self.nic.eqn, **record},
                **place["cq"],
            },
            "create_qp": {
                "qpc": {
                    "st": 0, "pm_state": 3, "pd": self.nic.pdn, "rq_type": 3, "log_sq_size": 3, "uar_page": page,
                    "cqn_snd": self.queue.cqn, "cqn_rcv": self.queue.cqn, **record,
                },
                **place["wq"],
            },
            "create_mkey": {"memory_key_mkey_entry": {"lr": 1, "lw": 1, "pd": self.nic.pdn, "length64": 1}},
            "create_rmp": {"ctx": {"wq": {
                "wq_type": 1, "pd": self.nic.pdn, "log_wq_stride": 5, "log_wq_sz": 2, **place["wq"], **record,
            }}},
            "query_roce_address": {"roce_address_index": 3},
        }  # fmt: skip
        path = Path(1, 3, True, self.nic.mac(3), 5)
        steps = init_fields(path, True), rtr_fields(path, self.other.info, 1, 4), rts_fields(path, 0, 4, 14, 7)
        self.working |= {name: {"qpc": fields} for name, fields in zip(UPWARDS, steps, strict=True)}

    def packed(self, name: str, changed: dict[str, int], **fields: int) -> tuple[bytes, int]:
        """A command's bytes, and how many its answer has."""
        layout = formats.structs[f"{name}_in"]
        body = bytearray(layout.pack(opcode=opcode(name), **self.working.get(name, {}), **fields))
        for path, value in changed.items():
            if path not in fields:
                layout.set(body, path, value)
        return bytes(body), formats.structs[f"{name}_out"].bytes

    def judge(self, name: str, error: _verbs.DevxError) -> None:
        """A refusal comes from the firmware with status, syndrome and a sentence."""
        assert error.errno == errno.EREMOTEIO, (name, error)
        head = formats.structs["query_lag_out"]
        status, syndrome = (int(head.get(error.output[: head.bytes], field)) for field in ("status", "syndrome"))
        assert status and syndrome, (name, error.output[:16].hex())
        assert formats.command_status_meaning(status).name, (name, status)
        said = [s for s in self.software.report() if f"syndrome 0x{syndrome:x}" in s]
        assert said or len(self.software.report()) >= 200, (name, hex(syndrome))

    def close(self) -> None:
        for queue in (self.queue, self.other):
            queue.close()
        self.nic.close()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GDA_NIC", "software")
        gc.collect()
        before = attach.software_nic().objects()
        bench = Bench()
        yield bench
        bench.close()
        gc.collect()
        assert attach.software_nic().objects() == before


@contextlib.contextmanager
def unchanged(bench: Bench) -> Iterator[None]:
    bench.software.clear_report()
    before = bench.software.objects()
    yield
    assert bench.software.objects() == before


@given(st.data())
@SETTINGS
def test_making_objects(bench, data):
    name, changed = data.draw(commands[CREATE])
    body, answer_bytes = bench.packed(name, changed)
    with unchanged(bench):
        try:
            made = _verbs.mlx5dv_devx_obj_create(bench.context, body, answer_bytes)
        except _verbs.DevxError as error:
            bench.judge(name, error)
        else:
            assert bench.software.objects() > 0 and formats.structs[f"{name}_out"].get(made.output, "status") == 0
            made.close()


def test_values_that_work(bench):
    """Else nothing but refusals would be tested above."""
    for name in CREATE:
        body, answer_bytes = bench.packed(name, {})
        made = _verbs.mlx5dv_devx_obj_create(bench.context, body, answer_bytes)
        if name == "create_qp":
            number = int(formats.structs["create_qp_out"].get(made.output, "qpn"))
            for step in UPWARDS:
                _verbs.mlx5dv_devx_obj_modify(made, *bench.packed(step, {}, qpn=number))
        made.close()


def give_orders(bench: Bench, made: str, number: str, orders: list[tuple[str, dict[str, int]]]) -> None:
    """Make an object, named by a field `number` in its commands, give it orders, and end it when all is done."""
    body, answer_bytes = bench.packed(made, {})
    with unchanged(bench):
        thing = _verbs.mlx5dv_devx_obj_create(bench.context, body, answer_bytes)
        named = {number: int(formats.structs[f"{made}_out"].get(thing.output, number))}
        for name, changed in orders:
            call = _verbs.mlx5dv_devx_obj_query if name.startswith("query") else _verbs.mlx5dv_devx_obj_modify
            try:
                call(thing, *bench.packed(name, changed, **named))
            except _verbs.DevxError as error:
                bench.judge(name, error)
        while bench.software.step():
            pass
        thing.close()


@given(st.integers(0, 3), st.lists(commands[QUEUE_PAIR], min_size=1, max_size=6))
@SETTINGS
def test_moving_a_queue_pair(bench, risen, moves):
    give_orders(bench, "create_qp", "qpn", [*((step, {}) for step in UPWARDS[:risen]), *moves])


@given(st.lists(commands[COMPLETION_QUEUE], min_size=1, max_size=4))
@SETTINGS
def test_changing_a_completion_queue(bench, orders):
    give_orders(bench, "create_cq", "cqn", orders)


@given(st.data())
@SETTINGS
def test_questions(bench, data):
    name, changed = data.draw(commands[GENERAL])
    body, answer_bytes = bench.packed(name, changed)
    with unchanged(bench):
        try:
            answer = _verbs.mlx5dv_devx_general_cmd(bench.context, body, answer_bytes)
        except _verbs.DevxError as error:
            bench.judge(name, error)
        else:
            assert formats.structs[f"{name}_out"].get(answer, "status") == 0
