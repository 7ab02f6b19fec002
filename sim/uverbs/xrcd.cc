// SPDX-License-Identifier: Apache-2.0
// Domains of XRC: OPEN_XRCD, CLOSE_XRCD, and their receiving queue pairs by number: OPEN_QP. A domain that was opened
// by a file is shared by all contexts of this process that open it by the same file; it ends with the last of them, and
// so does a queue pair. Between processes there is nothing to share: each has a NIC of its own. Source: Linux,
// drivers/infiniband/core/uverbs_cmd.c (ib_uverbs_open_xrcd, ib_uverbs_open_qp), verbs.c (ib_open_qp).
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/stat.h>

#include <map>
#include <mutex>
#include <tuple>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"
#include "sim/uverbs/qp.h"

namespace sim::uverbs {

class XrcDomain {
   public:
    XrcDomain(int nic, uint32_t number) : nic_(nic), number_(number) {}
    ~XrcDomain() {
        Nic nic(nic_, Nic::Make::no);
        if (nic) nic->release_xrcd(number_);
    }
    XrcDomain(const XrcDomain&) = delete;
    XrcDomain& operator=(const XrcDomain&) = delete;
    uint32_t number() const { return number_; }
    void add(const std::shared_ptr<XrcTarget>& target) {
        std::lock_guard<std::mutex> hold(lock_);
        targets_[target->qp.qpn] = target;
    }
    std::shared_ptr<XrcTarget> find(uint32_t qpn) {
        std::lock_guard<std::mutex> hold(lock_);
        auto found = targets_.find(qpn);
        return found == targets_.end() ? nullptr : found->second.lock();
    }

   private:
    const int nic_;
    const uint32_t number_;
    std::mutex lock_;
    std::map<uint32_t, std::weak_ptr<XrcTarget>> targets_;  // numbers are given again: some have ended
};

int Xrcd::destroy() {
    domain_.reset();
    return 0;
}
uint32_t Xrcd::number() const { return domain_->number(); }
void Xrcd::add(const std::shared_ptr<XrcTarget>& target) { domain_->add(target); }
std::shared_ptr<XrcTarget> Xrcd::find(uint32_t qpn) const { return domain_->find(qpn); }

namespace xrcd {
namespace {

using File = std::tuple<int, dev_t, ino_t>;  // of a NIC
std::mutex files_lock;
std::map<File, std::weak_ptr<XrcDomain>> files;

int make(std::shared_ptr<XrcDomain>* domain) {
    Nic nic;
    if (!nic) return ENODEV;
    uint32_t number;
    if (int error = nic->allocate_xrcd(&number)) return -error;
    *domain = std::make_shared<XrcDomain>(Nic::current(), number);
    return 0;
}

}  // namespace

int open(Context& context, const WriteCommand& command) {
    ib_uverbs_open_xrcd request;
    if (!command.read(&request)) return ENOSPC;
    std::shared_ptr<XrcDomain> domain;
    const auto fd = static_cast<int>(request.fd);
    if (fd == -1) {
        if (int error = make(&domain)) return error;
    } else {
        struct stat status;
        if (fstat(fd, &status) != 0) return EBADF;
        std::lock_guard<std::mutex> hold(files_lock);
        std::weak_ptr<XrcDomain>& known = files[File{Nic::current(), status.st_dev, status.st_ino}];
        domain = known.lock();
        if (!domain && !(request.oflags & O_CREAT)) return EAGAIN;
        if (domain && (request.oflags & O_EXCL)) return EINVAL;
        if (!domain) {
            if (int error = make(&domain)) return error;
            known = domain;
        }
    }
    ib_uverbs_open_xrcd_resp response{};
    response.xrcd_handle = context.objects.add(std::make_unique<Xrcd>(std::move(domain)));
    command.answer(response);
    return 0;
}

int close(Context& context, const WriteCommand& command) {
    ib_uverbs_close_xrcd request;
    if (!command.read(&request)) return ENOSPC;
    auto* xrcd = context.objects.find<Xrcd>(request.xrcd_handle);
    return xrcd ? context.objects.destroy(xrcd) : EINVAL;
}

int open_qp(Context& context, const WriteCommand& command) {
    ib_uverbs_open_qp request;
    if (!command.read(&request)) return ENOSPC;
    auto* xrcd = context.objects.find<Xrcd>(request.pd_handle);
    if (!xrcd || request.qp_type != IB_UVERBS_QPT_XRC_TGT) return EINVAL;
    auto target = xrcd->find(request.qpn);
    if (!target) return EINVAL;
    ib_uverbs_create_qp_resp response{};
    response.qpn = request.qpn;
    response.qp_handle = share(context, xrcd, std::move(target), {request.user_handle, nullptr, context.asynchronous});
    command.answer(response);
    return 0;
}

}  // namespace xrcd
}  // namespace sim::uverbs
