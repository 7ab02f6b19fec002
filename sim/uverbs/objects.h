// SPDX-License-Identifier: Apache-2.0
// What a context holds: objects with handles, which other objects they stand on, and the order of their end.
// The rules are the kernel's: an object in use refuses to be destroyed (EBUSY); closing the file destroys all,
// last created first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace sim::uverbs {

// Small, since there are 65,536 memory regions: what comes first in a derived class lies in the gap behind `type`.
class Object {
   public:
    enum class Type : uint8_t { pd, mr, mw, cq, qp, srq, ah, uar, umem, devx, device_memory, xrcd };
    explicit Object(Type type) : type(type) {}
    virtual ~Object() = default;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    // Gives it back to the NIC: 0 or an errno, and then it still exists.
    virtual int destroy() = 0;

    // The objects this one stands on: `base`, and MORE_BASES of them where a class stands on several.
    enum : int { MORE_BASES = 3 };
    virtual Object** more_bases() { return nullptr; }
    Object* base = nullptr;
    uint32_t handle = 0;
    int users = 0;  // objects that stand on this one
    const Type type;
};

// The objects that several commands need. The others live in the file of their commands.
class Pd : public Object {
   public:
    static constexpr Type kind = Type::pd;
    Pd() : Object(kind) {}
    int destroy() override;
    uint32_t pdn = 0;
};

// A domain of XRC, which several contexts may have opened, and so its receiving queue pairs: xrcd.cc.
class XrcDomain;
struct XrcTarget;
class Xrcd : public Object {
   public:
    static constexpr Type kind = Type::xrcd;
    explicit Xrcd(std::shared_ptr<XrcDomain> domain) : Object(kind), domain_(std::move(domain)) {}
    int destroy() override;
    uint32_t number() const;
    // Its queue pairs by their numbers: enters one; null when it has none of that number.
    void add(const std::shared_ptr<XrcTarget>& target);
    std::shared_ptr<XrcTarget> find(uint32_t qpn) const;

   private:
    std::shared_ptr<XrcDomain> domain_;
};

// Memory that the driver registered for one of its objects: released with it.
class Umem {
   public:
    Umem() = default;
    ~Umem() { release(); }
    Umem(const Umem&) = delete;
    Umem& operator=(const Umem&) = delete;
    int reserve(uint64_t address, uint64_t bytes);  // 0 or an errno
    int release();
    void swap(Umem& other) { std::swap(id_, other.id_); }
    uint32_t id() const { return id_; }
    bool valid() const { return id_ != 0; }

   private:
    uint32_t id_ = 0;  // 0: none, which the NIC never gives out
};

class Cq : public Object {
   public:
    static constexpr Type kind = Type::cq;
    Cq() : Object(kind) {}
    int destroy() override;
    Umem ring, record;
    uint32_t cqn = 0, log_entries = 0, entry_bytes = 0;
    uint64_t user_handle = 0;
    uint32_t completions_reported = 0, asynchronous_reported = 0;  // filled in by destroy()
};

class Srq : public Object {
   public:
    static constexpr Type kind = Type::srq;
    Srq() : Object(kind) {}
    int destroy() override;
    Object** more_bases() override { return domain_and_queue; }  // behind the PD

    Object* domain_and_queue[MORE_BASES] = {};  // over XRC
    Umem ring, record;
    uint32_t srqn = 0, entries = 0, segments = 0;  // data segments of one WQE
    uint32_t asynchronous_reported = 0;            // filled in by destroy()
};

class Objects {
   public:
    // Takes over an object the NIC already has; returns its handle. A handle is used again, but not soon.
    uint32_t add(std::unique_ptr<Object> object, std::initializer_list<Object*> bases = {});

    // The object of that handle and type, or null.
    template <typename T>
    T* find(uint32_t handle) const {
        Object* object = find_any(handle);
        return object && object->type == T::kind ? static_cast<T*>(object) : nullptr;
    }
    Object* find_any(uint32_t handle) const {
        return handle / BLOCK < blocks_.size() ? (*blocks_[handle / BLOCK])[handle % BLOCK].get() : nullptr;
    }

    // 0, EBUSY while something stands on it, or what the NIC said.
    int destroy(Object* object);
    // The second half of destroy(), for commands that answer with what destroy() of the object found out.
    void forget(Object* object);
    void destroy_all();
    size_t size() const { return size_; }

   private:
    enum : uint32_t { BLOCK = 256 };
    typedef std::array<std::unique_ptr<Object>, BLOCK> Block;
    uint32_t free_handle();

    std::vector<std::unique_ptr<Block>> blocks_;  // by handle; grows when seven eighths are in use
    size_t size_ = 0;
    uint32_t next_ = 0;
};

}  // namespace sim::uverbs
