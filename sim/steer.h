// SPDX-License-Identifier: Apache-2.0
// The C functions by which Python reaches the software NIC in its process (gda/attach.py loads them by name).
// Integers and strings only; strings stay valid until the same function is called again by the same thread.
#pragma once

#include <cstdint>

#define GDA_SIM_EXPORT extern "C" __attribute__((visibility("default")))

// Puts the software NIC behind the libibverbs, libmlx5 and libnl-3 loaded in this process. Idempotent.
// 0, or a negative errno with the reason in gda_sim_message().
GDA_SIM_EXPORT int gda_sim_attach(void);
GDA_SIM_EXPORT int gda_sim_attached(void);
GDA_SIM_EXPORT const char* gda_sim_message(void);

// One step of the engine of every NIC in this process; how many things were done. This is also the idle hook of
// device code that runs on the CPU.
GDA_SIM_EXPORT int gda_sim_step(void);
// 0: only steps; 1: a background thread that naps when idle (default); 2: a background thread that spins.
GDA_SIM_EXPORT int gda_sim_set_thread(int mode);

// How many NICs this process has (GDA_SIM_NICS). They are numbered from 0, in the order of their names. What has no
// such argument is about all of them together.
GDA_SIM_EXPORT int gda_sim_nics(void);
// How many ports each of them has (GDA_SIM_PORTS), counted from 1. The first NIC is made if it is not there yet.
GDA_SIM_EXPORT int gda_sim_ports(void);
// Virtual time on or off, for all NICs of the process; and what time it is, in nanoseconds of either clock.
GDA_SIM_EXPORT void gda_sim_set_virtual_time(int on);
GDA_SIM_EXPORT uint64_t gda_sim_now_ns(void);

GDA_SIM_EXPORT uint64_t gda_sim_counter(const char* name);
GDA_SIM_EXPORT uint64_t gda_sim_nic_counter(int nic, const char* name);
GDA_SIM_EXPORT uint64_t gda_sim_port_counter(int nic, uint32_t port, const char* name);
GDA_SIM_EXPORT const char* gda_sim_counter_names(void);  // separated by newlines
// What programs did wrong, oldest first: a line each with the kind, how often, values as name=number separated by
// spaces, and the sentence, separated by tabs. And all kinds there are: a line each with name, rule, source, advice.
GDA_SIM_EXPORT const char* gda_sim_report(void);
GDA_SIM_EXPORT const char* gda_sim_complaint_kinds(void);
GDA_SIM_EXPORT void gda_sim_clear_report(void);
// What happens with complaints when the process ends: 0 they are printed, 1 nothing, 2 printed, and status 0
// becomes 86.
GDA_SIM_EXPORT int gda_sim_set_last_words(int manner);
GDA_SIM_EXPORT int gda_sim_last_doorbell(uint32_t qpn, uint64_t* value);  // 1 if there was one
GDA_SIM_EXPORT void gda_sim_set_gpu_staging(int on);
// Writes through memory regions with relaxed ordering become visible late, in an order that the seed decides
// (sim/engine/ordering.h).
GDA_SIM_EXPORT void gda_sim_set_relaxed_ordering(int on, uint64_t seed);
// Store-buffer mode, and the hook by which device code on the CPU tells of its fences of system scope (0), of its
// beginning (1) and end (2): sim/engine/shadow.h. Payload that changes while it is being sent: sim/engine/sources.h.
GDA_SIM_EXPORT void gda_sim_set_store_buffer(int on);
GDA_SIM_EXPORT void gda_sim_fence(int moment);
GDA_SIM_EXPORT void gda_sim_watch_sources(int on);
// Faults of the network from now on (sim/link/fault_spec.h), or whether a text is understood; a capture of what the NIC
// sends and receives (sim/link/capture.h). An empty text or path ends it. 0; -EINVAL with the reason in
// gda_sim_message(); -ENODEV when there is no NIC and none can be made.
GDA_SIM_EXPORT int gda_sim_set_faults(const char* text);
GDA_SIM_EXPORT int gda_sim_check_faults(const char* text);
GDA_SIM_EXPORT int gda_sim_set_capture(const char* path);
// A trace of what each NIC does, in a file of that directory for each (sim/engine/trace.h): the newest 2^log_events
// events, without requests that have a bit of `skip` in their index. An empty path ends it. Answers as above. Before
// the files are read while it runs, the second brings their clocks up to date.
GDA_SIM_EXPORT int gda_sim_set_trace(const char* directory, uint32_t log_events, uint32_t skip);
GDA_SIM_EXPORT void gda_sim_synchronize_trace(void);
// Tells every open context of an event of that port or of the device, as a card reports it by itself: a number of enum
// ibv_event_type that is about neither a queue nor a shared queue. What queries answer does not change.
// How many contexts were told; -EINVAL for an event about an object.
GDA_SIM_EXPORT int gda_sim_raise(int event, uint32_t port);
// The network changes: an entry of a port's address table becomes these 16 bytes (null: empty) with RoCE version 1 or
// 2; its link goes down or up; the MTU of the network device behind it is another. Contexts hear of it by GID_CHANGE,
// PORT_ERR and PORT_ACTIVE. 0, or a negative errno: ENODEV (no such NIC), EINVAL (a bad port, index, version or MTU),
// EEXIST (another entry of the NIC has that address and version).
GDA_SIM_EXPORT int gda_sim_set_gid(int nic, uint32_t port, int index, const uint8_t* gid, int version);
GDA_SIM_EXPORT int gda_sim_set_link(int nic, uint32_t port, int up);
GDA_SIM_EXPORT int gda_sim_set_mtu(int nic, uint32_t port, uint32_t bytes);
GDA_SIM_EXPORT uint64_t gda_sim_objects(void);  // objects alive in this process's NIC: 0 after a clean teardown
