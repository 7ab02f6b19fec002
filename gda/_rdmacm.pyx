# SPDX-License-Identifier: Apache-2.0
"""librdmacm for Python, opened at run time: what connecting an iWARP queue pair needs, and no policy.

Builds without its headers and imports without the library: `Channel()` says what is missing. A queue pair is named by
its number only (its context and protection domain stay the caller's), which is what the kernel connects by. Used by
gda/nic/connector.py, from one thread. Source: rdma_cm(7), rdma_create_id(3), rdma_connect(3), rdma_get_cm_event(3).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uintptr_t
from libc.string cimport memset

import itertools
import os
from collections import namedtuple

from gda.errors import ClosedError, UnavailableError, VerbsError

cdef extern from *:
    """
    #include <arpa/inet.h>
    #include <dlfcn.h>
    #include <ifaddrs.h>
    #include <infiniband/verbs.h>
    #include <net/if.h>
    #include <netinet/in.h>
    #include <string.h>
    /* What rdma/rdma_cma.h declares, as far as it is used: the beginnings of structures that only the library makes. */
    struct gda_cm_channel { int fd; };
    struct gda_cm_id { struct ibv_context *verbs; struct gda_cm_channel *channel; void *context; };
    struct gda_cm_param {
        const void *private_data;
        uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
        uint32_t qp_num;
    };
    struct gda_cm_event {
        struct gda_cm_id *id, *listen_id;
        int event, status;
        struct gda_cm_param conn;
    };
    static inline const char *gda_cm_device(const struct gda_cm_id *id)
    { return id->verbs ? ibv_get_device_name(id->verbs->device) : ""; }
    /* An address of 4 or 16 bytes and a port, as sockets take them. */
    static inline void gda_cm_address(struct sockaddr_storage *to, const char *bytes, size_t count, uint16_t port)
    {
        memset(to, 0, sizeof *to);
        if (count == 4) {
            struct sockaddr_in *v4 = (struct sockaddr_in *)to;
            v4->sin_family = AF_INET;
            v4->sin_port = htons(port);
            memcpy(&v4->sin_addr, bytes, count);
        } else {
            struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
            v6->sin6_family = AF_INET6;
            v6->sin6_port = htons(port);
            memcpy(&v6->sin6_addr, bytes, count);
        }
    }
    /* The bytes of an interface's address, and how many; 0 for what is none of IP, or of an interface that is down. */
    static inline size_t gda_cm_own_address(const struct ifaddrs *one, const void **bytes)
    {
        if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) return 0;
        if (one->ifa_addr->sa_family == AF_INET) {
            *bytes = &((const struct sockaddr_in *)one->ifa_addr)->sin_addr;
            return 4;
        }
        if (one->ifa_addr->sa_family != AF_INET6) return 0;
        *bytes = &((const struct sockaddr_in6 *)one->ifa_addr)->sin6_addr;
        return 16;
    }
    """
    void *dlopen(const char *name, int flags) nogil
    void *dlsym(void *library, const char *symbol) nogil
    char *dlerror() nogil
    int RTLD_NOW
    uint16_t ntohs(uint16_t value) nogil
    struct ifaddrs:
        ifaddrs *ifa_next
    int getifaddrs(ifaddrs **first) nogil
    void freeifaddrs(ifaddrs *first) nogil
    struct sockaddr_storage:
        pass
    struct gda_cm_channel:
        int fd
    struct gda_cm_id:
        void *context
    struct gda_cm_param:
        const void *private_data
        uint8_t private_data_len
        uint8_t responder_resources
        uint8_t initiator_depth
        uint8_t retry_count
        uint8_t rnr_retry_count
        uint32_t qp_num
    struct gda_cm_event:
        gda_cm_id *id
        int event
        int status
        gda_cm_param conn
    const char *gda_cm_device(const gda_cm_id *id)
    void gda_cm_address(sockaddr_storage *to, const char *bytes, size_t count, uint16_t port)
    size_t gda_cm_own_address(const ifaddrs *one, const void **bytes)

ctypedef gda_cm_channel *(*t_create_channel)() noexcept nogil
ctypedef void (*t_destroy_channel)(gda_cm_channel *) noexcept nogil
ctypedef int (*t_create_id)(gda_cm_channel *, gda_cm_id **, void *, int) noexcept nogil
ctypedef int (*t_id)(gda_cm_id *) noexcept nogil
ctypedef int (*t_bind)(gda_cm_id *, sockaddr_storage *) noexcept nogil
ctypedef int (*t_id_int)(gda_cm_id *, int) noexcept nogil
ctypedef int (*t_resolve)(gda_cm_id *, sockaddr_storage *, sockaddr_storage *, int) noexcept nogil
ctypedef int (*t_connect)(gda_cm_id *, gda_cm_param *) noexcept nogil
ctypedef int (*t_reject)(gda_cm_id *, const void *, uint8_t) noexcept nogil
ctypedef uint16_t (*t_port)(gda_cm_id *) noexcept nogil
ctypedef int (*t_get_event)(gda_cm_channel *, gda_cm_event **) noexcept nogil
ctypedef int (*t_ack)(gda_cm_event *) noexcept nogil

cdef void *library = NULL
cdef t_create_channel p_create_channel = NULL
cdef t_destroy_channel p_destroy_channel = NULL
cdef t_create_id p_create_id = NULL
cdef t_id p_destroy_id = NULL
cdef t_id p_disconnect = NULL
cdef t_bind p_bind = NULL
cdef t_id_int p_listen = NULL
cdef t_id_int p_route = NULL
cdef t_resolve p_resolve = NULL
cdef t_connect p_connect = NULL
cdef t_connect p_accept = NULL
cdef t_reject p_reject = NULL
cdef t_port p_port = NULL
cdef t_get_event p_get_event = NULL
cdef t_ack p_ack = NULL

cdef enum:
    PORT_SPACE_TCP = 0x0106
    FOR_EVER = 7  # retries, where the transport counts them

# enum rdma_cm_event_type, in its order.
EVENTS = (
    "ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
    "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN",
    "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
)
# What happened to the Id of that number; `request` is the new Id of a CONNECT_REQUEST. `status` is 0, or an errno.
Event = namedtuple("Event", "kind status number request private_data")

_ADVICE = {
    "rdma_create_event_channel": "the kernel's module is missing, or the user may not open its device: "
                                 "modprobe rdma_ucm; ls -l /dev/infiniband/rdma_cm",
}
_numbers = itertools.count(1)


cdef object failure(str call, int error):
    return VerbsError(call, error, _ADVICE.get(call.split("(", 1)[0], ""))


cdef void load() except *:
    global library, p_create_channel, p_destroy_channel, p_create_id, p_destroy_id, p_disconnect, p_bind, p_listen
    global p_route, p_resolve, p_connect, p_accept, p_reject, p_port, p_get_event, p_ack
    if library != NULL:
        return
    cdef void *found = dlopen(b"librdmacm.so.1", RTLD_NOW)
    if found == NULL:
        raise UnavailableError(
            f"iWARP queue pairs are connected by librdmacm, which is not here: {dlerror().decode(errors='replace')}",
            "apt-get install librdmacm1",
        )
    p_create_channel = <t_create_channel>dlsym(found, b"rdma_create_event_channel")
    p_destroy_channel = <t_destroy_channel>dlsym(found, b"rdma_destroy_event_channel")
    p_create_id = <t_create_id>dlsym(found, b"rdma_create_id")
    p_destroy_id = <t_id>dlsym(found, b"rdma_destroy_id")
    p_disconnect = <t_id>dlsym(found, b"rdma_disconnect")
    p_bind = <t_bind>dlsym(found, b"rdma_bind_addr")
    p_listen = <t_id_int>dlsym(found, b"rdma_listen")
    p_route = <t_id_int>dlsym(found, b"rdma_resolve_route")
    p_resolve = <t_resolve>dlsym(found, b"rdma_resolve_addr")
    p_connect = <t_connect>dlsym(found, b"rdma_connect")
    p_accept = <t_connect>dlsym(found, b"rdma_accept")
    p_reject = <t_reject>dlsym(found, b"rdma_reject")
    p_port = <t_port>dlsym(found, b"rdma_get_src_port")
    p_get_event = <t_get_event>dlsym(found, b"rdma_get_cm_event")
    p_ack = <t_ack>dlsym(found, b"rdma_ack_cm_event")
    if (p_create_channel == NULL or p_destroy_channel == NULL or p_create_id == NULL or p_destroy_id == NULL
            or p_disconnect == NULL or p_bind == NULL or p_listen == NULL or p_route == NULL or p_resolve == NULL
            or p_connect == NULL or p_accept == NULL or p_reject == NULL or p_port == NULL or p_get_event == NULL
            or p_ack == NULL):
        raise UnavailableError("librdmacm.so.1 lacks calls that it should have", "apt-get install librdmacm1")
    library = found


def own_addresses():
    """IP addresses of this host's interfaces that are up, 4 or 16 bytes each, in the kernel's order."""
    cdef ifaddrs *first = NULL
    cdef const void *place = NULL
    cdef size_t count
    if getifaddrs(&first) != 0:
        raise failure("getifaddrs()", errno)
    found = []
    cdef ifaddrs *one = first
    while one != NULL:
        count = gda_cm_own_address(one, &place)
        if count:
            found.append(PyBytes_FromStringAndSize(<const char *>place, count))
        one = one.ifa_next
    freeifaddrs(first)
    return found


cdef class Channel:
    """An event channel. Ids are made from it, and must be destroyed before it is closed."""

    cdef gda_cm_channel *pointer

    def __cinit__(self):
        load()
        with nogil:
            self.pointer = p_create_channel()
        if self.pointer == NULL:
            raise failure("rdma_create_event_channel()", errno)
        os.set_blocking(self.pointer.fd, False)

    @property
    def fd(self):
        """Readable while there are events."""
        return self.get().fd

    cdef gda_cm_channel *get(self) except NULL:
        if self.pointer == NULL:
            raise ClosedError("this event channel has been closed", "use it before close()")
        return self.pointer

    def close(self):
        """Again is no error."""
        cdef gda_cm_channel *pointer = self.pointer
        self.pointer = NULL
        if pointer != NULL:
            with nogil:
                p_destroy_channel(pointer)

    def id(self):
        """A new Id (rdma_create_id)."""
        cdef Id made = Id.__new__(Id)
        cdef gda_cm_channel *channel = self.get()
        cdef uintptr_t number = next(_numbers)
        cdef int rc
        with nogil:
            rc = p_create_id(channel, &made.pointer, <void *>number, PORT_SPACE_TCP)
        if rc != 0:
            raise failure("rdma_create_id()", errno)
        made.number = number
        return made

    def event(self):
        """The next Event, acknowledged; None if there is none."""
        cdef gda_cm_channel *channel = self.get()
        cdef gda_cm_event *event = NULL
        cdef int rc
        cdef uintptr_t number
        with nogil:
            rc = p_get_event(channel, &event)
        if rc != 0:
            if errno == EAGAIN:
                return None
            raise failure("rdma_get_cm_event()", errno)
        kind = EVENTS[event.event] if 0 <= event.event < len(EVENTS) else f"event {event.event}"
        cdef Id request = None
        data = b""
        number = <uintptr_t>event.id.context
        if kind == "CONNECT_REQUEST":
            request = Id.__new__(Id)
            request.pointer, request.number = event.id, next(_numbers)
            event.id.context = <void *>request.number
            if event.conn.private_data != NULL:
                data = PyBytes_FromStringAndSize(<const char *>event.conn.private_data, event.conn.private_data_len)
        answer = Event(kind, abs(event.status), number, request, data)
        with nogil:
            p_ack(event)
        return answer


cdef class Id:
    """One end of a connection, or who listens for such; Channel.id() and events make them."""

    cdef gda_cm_id *pointer
    cdef readonly uintptr_t number

    cdef gda_cm_id *get(self) except NULL:
        if self.pointer == NULL:
            raise ClosedError("this connection identifier has been destroyed", "use it before destroy()")
        return self.pointer

    @property
    def device(self):
        """Name of the device that it is bound to; "" while it is bound to none."""
        return gda_cm_device(self.get()).decode()

    @property
    def port(self):
        """The local port."""
        return ntohs(p_port(self.get()))

    def bind(self, bytes address not None, uint16_t port=0):
        """rdma_bind_addr; port 0 takes a free one."""
        cdef sockaddr_storage to
        self.fill(&to, address, port)
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = p_bind(id, &to)
        if rc != 0:
            raise failure(f"rdma_bind_addr(port {port})", errno)

    def listen(self, int backlog):
        """rdma_listen."""
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = p_listen(id, backlog)
        if rc != 0:
            raise failure("rdma_listen()", errno)

    def resolve_address(self, bytes own not None, bytes address not None, uint16_t port, int limit_ms):
        """rdma_resolve_addr, from an address of this host; ADDR_RESOLVED or ADDR_ERROR follows."""
        cdef sockaddr_storage source, to
        self.fill(&source, own, 0)
        self.fill(&to, address, port)
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = p_resolve(id, &source, &to, limit_ms)
        if rc != 0:
            raise failure(f"rdma_resolve_addr(port {port})", errno)

    def resolve_route(self, int limit_ms):
        """rdma_resolve_route; ROUTE_RESOLVED or ROUTE_ERROR follows."""
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = p_route(id, limit_ms)
        if rc != 0:
            raise failure("rdma_resolve_route()", errno)

    def connect(self, uint32_t qpn, bytes private_data not None, uint8_t reads):
        """rdma_connect for the queue pair of that number, with at most `reads` reads outstanding each way."""
        self.join("rdma_connect", p_connect, qpn, private_data, reads)

    def accept(self, uint32_t qpn, uint8_t reads):
        """rdma_accept; see connect()."""
        self.join("rdma_accept", p_accept, qpn, b"", reads)

    def reject(self):
        """rdma_reject."""
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = p_reject(id, NULL, 0)
        if rc != 0:
            raise failure("rdma_reject()", errno)

    def disconnect(self):
        """rdma_disconnect."""
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = p_disconnect(id)
        if rc != 0:
            raise failure("rdma_disconnect()", errno)

    def destroy(self):
        """rdma_destroy_id; again is no error."""
        cdef gda_cm_id *id = self.pointer
        self.pointer = NULL
        if id != NULL:
            with nogil:
                p_destroy_id(id)

    cdef void fill(self, sockaddr_storage *to, bytes address, uint16_t port) except *:
        if len(address) not in (4, 16):
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(address)}")
        gda_cm_address(to, PyBytes_AS_STRING(address), len(address), port)

    cdef void join(self, str call, t_connect function, uint32_t qpn, bytes private_data, uint8_t reads) except *:
        cdef gda_cm_param param
        memset(&param, 0, sizeof(param))
        if len(private_data) > 196:
            raise ValueError(f"{len(private_data)} bytes of private data are more than connections carry")
        param.private_data, param.private_data_len = PyBytes_AS_STRING(private_data), len(private_data)
        param.responder_resources = param.initiator_depth = reads
        param.retry_count = param.rnr_retry_count = FOR_EVER
        param.qp_num = qpn
        cdef gda_cm_id *id = self.get()
        cdef int rc
        with nogil:
            rc = function(id, &param)
        if rc != 0:
            raise failure(f"{call}(queue pair 0x{qpn:x})", errno)
