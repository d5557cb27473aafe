// What collectives do once all ranks have come to them.

#include <algorithm>
#include <cstring>

#include "memory.hpp"
#include "nccl.hpp"
#include "numbers.hpp"

namespace pretend {

namespace {

// Elements that a rank gives and gets.
struct Extent {
    size_t from, to;
};

Extent extent_of(const Part& part, size_t ranks) {
    switch (part.kind) {
        case Collective::AllGather: return {part.count, part.count * ranks};
        case Collective::ReduceScatter: return {part.count * ranks, part.count};
        default: return {part.count, part.count};
    }
}

bool gives(const Part& part, int rank) { return part.kind != Collective::Broadcast || rank == part.root; }
bool gets(const Part& part, int rank) { return part.kind != Collective::Reduce || rank == part.root; }

template <class T>
T combined(T a, T b, ncclRedOp_t operation) {
    switch (operation) {
        case ncclProd: return T(a * b);
        case ncclMax: return std::max(a, b);
        case ncclMin: return std::min(a, b);
        default: return T(a + b);
    }
}

// Folds `count` numbers of each buffer into the first, rank after rank.
template <class T>
void fold(std::vector<std::vector<char>>& buffers, size_t count, ncclRedOp_t operation) {
    for (size_t at = 0; at < count; ++at) {
        T total;
        std::memcpy(&total, buffers[0].data() + at * sizeof(T), sizeof(T));
        for (size_t rank = 1; rank < buffers.size(); ++rank) {
            T next;
            std::memcpy(&next, buffers[rank].data() + at * sizeof(T), sizeof(T));
            total = combined(total, next, operation);
        }
        if (operation == ncclAvg) total = T(total / T(buffers.size()));
        std::memcpy(buffers[0].data() + at * sizeof(T), &total, sizeof(T));
    }
}

void fold_bf16(std::vector<std::vector<char>>& buffers, size_t count, ncclRedOp_t operation) {
    for (size_t at = 0; at < count; ++at) {
        float total = read_one(buffers[0].data(), at, Number::Bf16);
        for (size_t rank = 1; rank < buffers.size(); ++rank)
            total = to_bf16(combined(total, read_one(buffers[rank].data(), at, Number::Bf16), operation));
        if (operation == ncclAvg) total /= float(buffers.size());
        write_one(buffers[0].data(), at, total, Number::Bf16);
    }
}

void fold_all(std::vector<std::vector<char>>& buffers, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
    switch (type) {
        case ncclInt8: return fold<int8_t>(buffers, count, operation);
        case ncclUint8: return fold<uint8_t>(buffers, count, operation);
        case ncclInt32: return fold<int32_t>(buffers, count, operation);
        case ncclUint32: return fold<uint32_t>(buffers, count, operation);
        case ncclInt64: return fold<int64_t>(buffers, count, operation);
        case ncclUint64: return fold<uint64_t>(buffers, count, operation);
        case ncclFloat32: return fold<float>(buffers, count, operation);
        case ncclFloat64: return fold<double>(buffers, count, operation);
        case ncclBfloat16: return fold_bf16(buffers, count, operation);
    }
}

// What a rank must be able to touch; throws Violation.
void check(const Part& part, int rank, size_t ranks) {
    const Extent extent = extent_of(part, ranks);
    if (gives(part, rank)) range(*part.context, part.from, extent.from * size_of(part.type), "a collective reads");
    if (gets(part, rank)) range(*part.context, part.to, extent.to * size_of(part.type), "a collective writes");
}

void perform(const std::map<int, Part>& parts) {
    const Part& first = parts.begin()->second;
    const size_t ranks = parts.size(), width = size_of(first.type);
    std::vector<std::vector<char>> buffers;
    for (const auto& [rank, part] : parts) {
        const size_t bytes = gives(part, rank) ? extent_of(part, ranks).from * width : 0;
        const char* from = reinterpret_cast<const char*>(part.from);
        buffers.emplace_back(from, from + bytes);
    }
    const bool folds = first.kind != Collective::Broadcast && first.kind != Collective::AllGather;
    if (folds) fold_all(buffers, extent_of(first, ranks).from, first.type, first.operation);
    for (const auto& [rank, part] : parts) {
        if (!gets(part, rank)) continue;
        char* to = reinterpret_cast<char*>(part.to);
        const size_t bytes = part.count * width;
        switch (part.kind) {
            case Collective::AllReduce:
            case Collective::Reduce: std::memcpy(to, buffers[0].data(), bytes); break;
            case Collective::Broadcast: std::memcpy(to, buffers[size_t(part.root)].data(), bytes); break;
            case Collective::ReduceScatter: std::memcpy(to, buffers[0].data() + size_t(rank) * bytes, bytes); break;
            case Collective::AllGather:
                for (size_t from = 0; from < ranks; ++from) std::memcpy(to + from * bytes, buffers[from].data(), bytes);
                break;
        }
    }
}

bool agree(const Part& a, const Part& b) {
    return a.kind == b.kind && a.count == b.count && a.type == b.type && a.operation == b.operation && a.root == b.root;
}

}  // namespace

size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8: return 1;
        case ncclBfloat16: return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32: return 4;
        case ncclInt64:
        case ncclUint64:
        case ncclFloat64: return 8;
    }
    return 0;
}

Work take_part(std::shared_ptr<Comm> comm, Part part) {
    return [comm, part]() -> Play {
        const uint64_t number = comm->given++;
        const bool stalls = world().fails("stall");
        return [comm, part, number, stalls] {
            if (comm->aborted) return Step::Done;
            // One after the other, whatever streams they are given to.
            if (stalls || comm->done != number) return Step::Blocked;
            const auto clique = comm->clique;
            Clique::Meeting& meeting = clique->meetings[number];
            if (meeting.parts.count(comm->rank) == 0) {
                check(part, comm->rank, size_t(clique->ranks));
                meeting.parts.emplace(comm->rank, part);
                if (!agree(part, meeting.parts.begin()->second)) throw Violation{"ranks take part in different collectives"};
            }
            if (int(meeting.parts.size()) < clique->ranks) return Step::Blocked;
            if (!meeting.done) perform(meeting.parts);
            meeting.done = true;
            ++comm->done;
            if (++meeting.left == clique->ranks) clique->meetings.erase(number);
            return Step::Done;
        };
    };
}

}  // namespace pretend
