// SPDX-License-Identifier: Apache-2.0
// One queue, its threads and its NIC in the model of memory.h, and the judge of what they do. Called by target.h (for
// the device library) and explore.cc (for the program).
//
// The NIC needs no turn of its own to be judged: each doorbell carries what the NIC must see when it comes, and the NIC
// may read any record that is not older. Only where the program waits for completions does the NIC run as a thread.
#pragma once

#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>

#include <set>
#include <string>

#include "explorer.h"
#include "memory.h"

namespace model {

enum habit : uint8_t { shared, constant, unread };  // constant: nobody stores to it; unread: nobody loads it

struct machine {
    explorer* all = nullptr;
    uint32_t nic = MOST_THREADS;                    // its thread, if it runs
    bool recordless = false;                        // kernels write no record
    bool doorbell_first = false, assisted = false;  // how the NIC is told, where not by record and doorbell
    bool gpu_scope = false;
    bool owned = false;  // one thread: its words are no shared ones
    uint8_t* sq = nullptr;
    void *record = nullptr, *doorbell = nullptr, *consumer_record = nullptr;
    uint64_t depth = 0, first = 0;  // first: index where the counters begin
    std::string removed;            // barrier@function that does nothing
    std::set<std::string> sites;    // all that were met

    // ---- words
    const void* address[WORDS];
    const char* name[WORDS + 1] = {};  // the last: no word
    habit habits[WORDS];
    uint64_t initial[WORDS];
    word words[WORDS];
    uint32_t count = 0;

    uint32_t add_word(const void* p, const char* what, uint64_t v, habit h = shared) {
        if (count == WORDS) __builtin_trap();
        address[count] = p;
        name[count] = what;
        habits[count] = h;
        initial[count] = v;
        return count++;
    }
    uint32_t find(const void* p) {
        for (uint32_t i = 0; i < count; ++i) {
            if (address[i] == p) return i;
        }
        all->violated("an access to a word that the program does not name");
    }

    // ---- an execution
    observer who[MOST_THREADS];
    bool fresh[MOST_THREADS];                    // after a turn of waiting: loads answer the newest
    uint64_t looked_at[MOST_THREADS];            // words, by bit, in this turn
    uint32_t saw[MOST_THREADS][WORDS];           // ... and the oldest that was seen of them
    bool moved[MOST_THREADS];                    // an owner changed a word of its own in this turn
    std::vector<uint8_t> pending[MOST_THREADS];  // slots of segments stored before their control segment
    struct sent {
        uint64_t end;
        view with;
        uint64_t before;  // doorbells that the NIC has surely seen by then, by number
    };
    std::vector<sent> records, doorbells;
    uint64_t heads[256];                             // first eight bytes of the request in each slot
    std::vector<uint64_t> consumers;                 // what the completion queue's record said, by number
    uint64_t stored, signaled;                       // requests, by bit
    uint64_t longer;                                 // blocks behind which their request goes on
    uint64_t taken, served, announced, completions;  // of the NIC

    void begin() {
        for (uint32_t i = 0; i < count; ++i) words[i].reset(initial[i]);
        for (uint32_t i = 0; i < MOST_THREADS; ++i) {
            who[i] = observer{};
            fresh[i] = false;
            looked_at[i] = 0;
            moved[i] = false;
            pending[i].clear();
        }
        records.assign(1, sent{first, view{}, 0});  // as the queue was made
        doorbells.clear();
        consumers.assign(1, 0);
        stored = signaled = longer = taken = completions = 0;
        served = announced = first;
    }

    observer& me() { return who[all->self()]; }
    // What lies before a thread's next stores. At gpu scope also what it has only read: all threads and the NIC meet in
    // one memory, and a store waits for the loads before it. Its own later loads may still be older.
    view before_stores(const observer& o) const {
        view v = o.now;
        if (gpu_scope) v.join(o.read);
        return v;
    }
    void release() { me().told = before_stores(me()); }
    void release_mmio() { me().told_mmio = before_stores(me()); }
    bool weakened(const char* what, const char* function) {
        std::string site = std::string(what) + "@" + function;
        sites.insert(site);
        return site == removed;
    }
    void note(const char* what, uint32_t w, uint64_t v, const char* more = "") {
        if (!all->noting()) return;
        char line[160];
        snprintf(line, sizeof line, "thread %u: %s %s %s%#llx", all->self(), what, name[w] != nullptr ? name[w] : "",
                 more, static_cast<unsigned long long>(v));
        all->note(line);
    }

    uint64_t load(const void* p, bool acquire) {
        uint32_t w = find(p);
        if (habits[w] == constant) return words[w].newest();
        if (habits[w] == unread) all->violated(std::string("a load of ") + name[w] + ", which the program leaves out");
        all->before(access{uint64_t(1) << w, true});
        observer& o = me();
        uint32_t back = fresh[all->self()] ? 0 : all->choose(words[w].readable(o.now, w));
        const value& v = words[w].at(words[w].size() - 1 - back);
        uint32_t& oldest = saw[all->self()][w];
        if ((looked_at[all->self()] >> w & 1) == 0 || v.place < oldest) oldest = v.place;
        looked_at[all->self()] |= uint64_t(1) << w;
        take_in(o, w, v, acquire);
        note("reads", w, v.v, back != 0 ? "(old) " : "");
        return v.v;
    }
    void take_in(observer& o, uint32_t w, const value& v, bool acquire) {
        o.now.place[w] = std::max(o.now.place[w], v.place);
        o.read.join(v.with);
        if (acquire) o.now.join(v.with);
    }

    void store(const void* p, uint64_t v, bool release) {
        uint32_t w = find(p);
        if (habits[w] == constant) all->violated(std::string("a store to ") + name[w]);
        if (habits[w] == unread) return;
        all->before(access{uint64_t(1) << w, false});
        observer& o = me();
        uint32_t back = all->choose(words[w].open(before_stores(o), w));
        put_in(o, w, words[w].insert(back, v, false, release ? o.now : o.told));
        note("stores", w, v, back != 0 ? "(late) " : "");
    }
    void put_in(observer& o, uint32_t w, value& v) {
        v.with.place[w] = std::max(v.with.place[w], v.place);
        o.now.place[w] = v.place;
    }

    // `change` answers whether it stores, and what.
    template <class Change>
    uint64_t modify(const void* p, Change change, bool acquire, bool release, bool answers, const char* what) {
        uint32_t w = find(p);
        if (habits[w] == constant) all->violated(std::string("the queue failed: a store to ") + name[w]);
        if (habits[w] == unread) return 0;
        all->before(access{uint64_t(1) << w, false});
        observer& o = me();
        uint32_t back = all->choose(words[w].open(before_stores(o), w));
        value old = words[w].at(words[w].size() - 1 - back);
        uint64_t v = old.v;
        bool stores = change(&v);
        if (answers) take_in(o, w, old, acquire);
        if (stores) {
            view with = release ? o.now : o.told;
            with.join(old.with);
            put_in(o, w, words[w].insert(back, v, true, with));
        }
        note(what, w, stores ? v : old.v, stores ? "-> " : "sees ");
        return old.v;
    }

    // ---- what the NIC reads
    uint64_t index_of(uint16_t counter) {
        return first + static_cast<uint16_t>(counter - static_cast<uint16_t>(first));
    }
    uint64_t bit(uint64_t index) {
        if (index < first || index - first >= REQUESTS) all->violated("an index that the program does not reach");
        return uint64_t(1) << (index - first);
    }
    uint64_t below(uint64_t end) { return end - first >= REQUESTS ? ~uint64_t(0) : (uint64_t(1) << (end - first)) - 1; }

    void store_segment(const void* p, uint64_t low, uint64_t high) {
        uint64_t offset = static_cast<uint64_t>(static_cast<const uint8_t*>(p) - sq);
        uint8_t slot = static_cast<uint8_t>(offset / 64);
        std::vector<uint8_t>& mine = pending[all->self()];
        if (offset % 64 != 0) return mine.push_back(slot);
        uint64_t control[2] = {low, high};
        uint64_t index = index_of(static_cast<uint16_t>(GDA_GET(wqe_ctrl_seg, control, wqe_index)));
        uint32_t segments = 1 + static_cast<uint32_t>(std::count(mine.begin(), mine.end(), slot));
        mine.erase(std::remove(mine.begin(), mine.end(), slot), mine.end());
        if (index % depth != slot) all->violated("a work request in another's slot");
        if (segments != GDA_GET(wqe_ctrl_seg, control, ds)) all->violated("a work request that is not whole");
        if ((stored & bit(index)) != 0) all->violated("two work requests with one index");
        if (index >= first + depth && (before_stores(me()).fetched & bit(index - depth)) == 0) {
            all->violated("a slot is written before the NIC has surely read what was in it");
        }
        stored |= bit(index);
        heads[slot] = low;
        if (GDA_GET(wqe_ctrl_seg, control, ce) == gda::prm::CE_ALWAYS) signaled |= bit(index);
        me().now.written |= bit(index);
        note("writes request", WORDS, index - first);
    }

    void store_record(const void* p, uint32_t dword) {
        if (p == consumer_record)
            return store_consumer(GDA_EXTRACT(cq_doorbell_record, consumer_index, gda::be32(dword)));
        if (p != record) all->violated("a record that the program does not have");
        if (nic != MOST_THREADS) all->before(access{uint64_t(1) << 62, false});
        observer& o = me();
        uint64_t end = index_of(static_cast<uint16_t>(GDA_EXTRACT(qp_doorbell_record, send_counter, gda::be32(dword))));
        note("record", WORDS, end - first);
        if (!knows_all(before_stores(o).records, records.size())) {
            all->violated("two records without order: the record may go back");
        }
        if (end < records.back().end) all->violated("the record goes back");
        whole(end);
        o.now.records |= uint64_t(1) << records.size();
        sent s{end, o.told, 0};
        s.with.records |= uint64_t(1) << records.size();
        records.push_back(s);
    }

    void whole(uint64_t end) {
        if (end != first && (longer & bit(end - 1)) != 0) all->violated("the NIC is told of half a request");
    }
    static bool knows_all(uint64_t known, size_t n) {
        uint64_t others = ((uint64_t(1) << n) - 1) & ~uint64_t(1);  // the first was there before
        return (known & others) == others;
    }
    // Of completions. The NIC learns of it through who posts what completes there.
    void store_consumer(uint64_t consumed) {
        observer& o = me();
        note("consumer record", WORDS, consumed);
        if (!knows_all(before_stores(o).consumers, consumers.size())) {
            all->violated("two consumer records without order: the record may go back");
        }
        if (consumed < consumers.back()) all->violated("the consumer record goes back");
        o.now.consumers |= uint64_t(1) << consumers.size();
        consumers.push_back(consumed);
    }

    void store_doorbell(const void* p, uint64_t v) {
        if (p != doorbell) all->violated("a doorbell that the program does not have");
        if (nic != MOST_THREADS) all->before(access{uint64_t(1) << 63, false});
        observer& o = me();
        uint64_t end = index_of(static_cast<uint16_t>(GDA_GET(send_doorbell, &v, wqe_index)));
        note("doorbell", WORDS, end - first);
        whole(end);
        doorbells.push_back(sent{end, assisted ? o.told : o.told_mmio, before_stores(o).doorbells});
        o.now.doorbells |= uint64_t(1) << (doorbells.size() - 1);
    }

    // The work request of a slot to the register.
    void store_blueflame(const void* p, const void* slot) {
        uint64_t number = static_cast<uint64_t>(static_cast<const uint8_t*>(slot) - sq) / 64;
        uint64_t half = static_cast<uint64_t>(static_cast<const uint8_t*>(p) - static_cast<const uint8_t*>(doorbell));
        if (half != 0 && half != gda::prm::UAR_BLUEFLAME_HALF_BYTES) all->violated("BlueFlame beside its register");
        if (nic != MOST_THREADS) all->before(access{uint64_t(1) << 63, false});
        observer& o = me();
        uint64_t end = 1 + index_of(static_cast<uint16_t>(GDA_GET(send_doorbell, &heads[number], wqe_index)));
        note("BlueFlame", WORDS, end - first);
        if ((o.now.written & bit(end - 1)) == 0) all->violated("BlueFlame of a request that is not surely written");
        whole(end);
        uint64_t told = first;
        for (uint32_t i = 0; i < doorbells.size(); ++i) {
            if ((before_stores(o).doorbells >> i & 1) != 0) told = std::max(told, doorbells[i].end);
        }
        if (told != end - 1) all->violated("the work request in the register is not the NIC's next");
        doorbells.push_back(sent{end, o.told_mmio, before_stores(o).doorbells});
        o.now.doorbells |= uint64_t(1) << (doorbells.size() - 1);
    }

    // Newest record that the NIC surely sees with this view.
    static uint64_t newest_of(uint64_t numbers) {
        return numbers == 0 ? 0 : 63u - static_cast<uint32_t>(__builtin_clzll(numbers));
    }

    // When all threads have ended.
    void judge(uint64_t reserved) {
        if (stored != below(reserved)) return all->failed("slots were reserved and never written");
        uint64_t told = first;
        for (const sent& d : doorbells) {
            uint64_t r = newest_of(d.with.records);
            for (const sent& other : doorbells) {
                uint32_t number = static_cast<uint32_t>(&other - doorbells.data());
                if (recordless && other.end < d.end && (d.before >> number & 1) == 0) {
                    return all->failed("two doorbells without order: the index may go back");
                }
            }
            // A NIC that takes the doorbell's word for it.
            if ((recordless || doorbell_first) && (below(d.end) & ~d.with.written) != 0) {
                return all->failed("rung before the work request is there");
            }
            if (recordless) {
                told = std::max(told, d.end);
                continue;
            }
            told = std::max(told, records[r].end);
            for (; r < records.size(); ++r) {
                if ((below(records[r].end) & ~(d.with.written | records[r].with.written)) != 0) {
                    return all->failed("rung before the work request is there");
                }
            }
        }
        if (told != reserved) all->failed("a doorbell is lost: the NIC may never hear of the last requests");
    }

    // ---- waiting, and the NIC's turns
    bool looked_old(uint32_t t) {
        if (moved[t]) return true;
        for (uint32_t w = 0; w < count; ++w) {
            if ((looked_at[t] >> w & 1) != 0 && words[w].newest_place() > saw[t][w]) return true;
        }
        return false;
    }
    void idle() {
        uint32_t t = all->self();
        fresh[t] = false;
        all->before(access{}, true);
        fresh[t] = true;
        moved[t] = false;
        looked_at[t] = 0;
    }
    uint64_t arrived() const {
        uint64_t n = 0;
        for (uint32_t i = 0; i < doorbells.size(); ++i) {
            if ((taken >> i & 1) == 0 && (doorbells[i].before & ~taken) == 0) n |= uint64_t(1) << i;
        }
        return n;
    }
    // One doorbell: then what the record says, or the register.
    void take_doorbell() {
        all->before(access{uint64_t(3) << 62, false}, true);
        observer& o = me();
        uint64_t may = arrived();
        for (uint32_t k = all->choose(static_cast<uint32_t>(__builtin_popcountll(may))); k != 0; --k) may &= may - 1;
        uint32_t number = static_cast<uint32_t>(__builtin_ctzll(may));
        taken |= uint64_t(1) << number;
        o.now.join(doorbells[number].with);
        uint64_t end = doorbells[number].end;
        if (!recordless) {
            uint64_t oldest = newest_of(o.now.records);
            uint64_t r = records.size() - 1 - all->choose(static_cast<uint32_t>(records.size() - oldest));
            o.now.join(records[r].with);
            end = records[r].end;
            // Or what the doorbell says, where that is more.
            if (doorbell_first && doorbells[number].end > end && all->choose(2) == 0) end = doorbells[number].end;
            if (doorbell_first) end = std::max(end, announced);
        }
        note("NIC hears", WORDS, end - first);
        if (end < announced) all->violated("the index goes back");
        announced = end;
    }
    // Executes the next request. True: it completes.
    bool serve() {
        observer& o = me();
        if ((o.now.written & bit(served)) == 0) all->violated("the NIC reads a slot that is not written");
        o.now.fetched |= bit(served);
        o.now.delivered |= bit(served);
        return (signaled & bit(served++)) != 0;
    }
    void complete(uint32_t w, uint64_t v, uint64_t entries) {
        all->before(access{uint64_t(1) << w, false});
        observer& o = me();
        if (entries > 1 && completions >= consumers[newest_of(o.now.consumers)] + entries) {
            all->violated("the completion queue overruns: the NIC does not surely see that an entry was read");
        }
        put_in(o, w, words[w].insert(0, v, false, o.now));
        note("NIC completes", w, served - 1 - first);
    }
};

extern machine here;

}  // namespace model
