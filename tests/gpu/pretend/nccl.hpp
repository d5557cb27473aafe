// NCCL's types, and communicators: ranks are threads of this process.

#pragma once
#include <climits>

#include "stream.hpp"

namespace pretend {

enum ncclResult_t : int {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
};

enum ncclDataType_t : int {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
};

enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

enum class Collective { AllReduce, Broadcast, Reduce, AllGather, ReduceScatter };

// One rank's part in a collective.
struct Part {
    Collective kind;
    CUdeviceptr from, to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t operation;
    int root;
    Context* context;
    std::shared_ptr<Stream> stream;
};

// What the ranks of a communicator share.
struct Clique {
    int ranks = 0;
    // Ranks that have come, and those that have given up.
    std::set<int> present, aborted;
    // Collectives that are going on, by their number; a rank's part is there once it is that rank's turn.
    struct Meeting {
        std::map<int, Part> parts;
        bool done = false;
        int left = 0;
    };
    std::map<uint64_t, Meeting> meetings;
};

struct Comm {
    std::shared_ptr<Clique> clique;
    int rank;
    Context& context;
    // Collectives that were given to it, and those that it has done.
    uint64_t given = 0, done = 0;
    bool aborted = false;

    bool complete() const { return int(clique->present.size()) == clique->ranks; }
};

Handles<Comm>& comms();

// Work that takes part in the communicator's next collective.
Work take_part(std::shared_ptr<Comm> comm, Part part);

// Bytes of a number; 0 of none that is known.
size_t size_of(ncclDataType_t type);

}  // namespace pretend
