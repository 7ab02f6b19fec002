// SPDX-License-Identifier: Apache-2.0
// Event queue entries: what the NIC tells its driver, and the driver hands to DEVX event channels as it is.
// Source: ConnectX Programmer's Reference Manual, "Event Queue Entry"; checked against the kernel's mlx5_ifc.h.
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum event_type {
    MLX5_EVENT_TYPE_COMP = 0x0,      // an armed completion queue
    MLX5_EVENT_TYPE_COMM_EST = 0x2,  // the first packet came in RTR
    MLX5_EVENT_TYPE_CQ_ERROR = 0x4,  // overrun
    MLX5_EVENT_TYPE_WQ_CATAS_ERROR = 0x5,
    MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR = 0x10,
    MLX5_EVENT_TYPE_WQ_ACCESS_ERROR = 0x11,
    MLX5_EVENT_TYPE_SRQ_CATAS_ERROR = 0x12,
    MLX5_EVENT_TYPE_SRQ_LAST_WQE = 0x13,
    MLX5_EVENT_TYPE_SRQ_RQ_LIMIT = 0x14,
};

// All entries have 64 bytes; 28 of them, from the second half on, depend on the event.
struct eqe_bits {
    u8 reserved_at_0[0x8];
    u8 event_type[0x8];  // enum event_type
    u8 reserved_at_10[0x8];
    u8 event_sub_type[0x8];
    u8 reserved_at_20[0xe0];
    u8 event_data[0x1c][0x8];  // comp_event, cq_error or qp_events
    u8 reserved_at_1e0[0x10];
    u8 signature[0x8];
    u8 reserved_at_1f8[0x7];
    u8 owner[0x1];
};

struct comp_event_bits {
    u8 reserved_at_0[0xc8];
    u8 cq_number[0x18];
};

struct cq_error_bits {
    u8 reserved_at_0[0x8];
    u8 cqn[0x18];
    u8 reserved_at_20[0x38];
    u8 syndrome[0x8];
    u8 reserved_at_60[0x80];
};

struct qp_events_bits {
    u8 reserved_at_0[0xa0];
    u8 type[0x8];
    u8 reserved_at_a8[0x20];
    u8 qpn_rqn_sqn[0x18];
};

}  // namespace prm
}  // namespace gda
