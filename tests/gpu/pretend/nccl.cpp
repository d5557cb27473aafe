// NCCL's calls.

#include "nccl.hpp"

#include <cstring>

namespace pretend {

namespace {

struct NcclRefusal {
    ncclResult_t result;
};

// As ncclUniqueId, which is passed by value.
struct UniqueId {
    char internal[128];
};

// The beginning of ncclConfig_t.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
    static auto& all = *new std::map<std::string, std::shared_ptr<Clique>>;
    return all;
}

// A thread's open groups, and what waits for the end of the outermost.
thread_local int depth = 0;
thread_local std::vector<std::function<void()>> deferred;
thread_local std::vector<std::shared_ptr<Comm>> beginners;

template <class Body>
ncclResult_t nccl_call(Body body) {
    std::lock_guard hold(world().lock);
    try {
        body();
        return ncclSuccess;
    } catch (const NcclRefusal& refusal) {
        return refusal.result;
    } catch (const Refusal& refusal) {
        return refusal.code == CUDA_ERROR_INVALID_HANDLE ? ncclInvalidArgument : ncclUnhandledCudaError;
    }
}

void need(bool holds, ncclResult_t otherwise = ncclInvalidArgument) {
    if (!holds) throw NcclRefusal{otherwise};
}

void wait_for_all(const std::vector<std::shared_ptr<Comm>>& all) {
    for (const auto& comm : all)
        while (!comm->complete() && !comm->aborted) world().changed.wait(world().lock);
}

ncclResult_t begin(void** handle, int ranks, const UniqueId& id, int rank, bool blocking) {
    return nccl_call([&] {
        Context& context = current();
        need(handle && ranks > 0 && rank >= 0 && rank < ranks);
        auto& clique = cliques()[std::string(id.internal, sizeof id.internal)];
        if (!clique) clique = std::make_shared<Clique>(), clique->ranks = ranks;
        need(clique->ranks == ranks && clique->present.insert(rank).second, ncclInvalidUsage);
        const auto comm = std::make_shared<Comm>(Comm{clique, rank, context});
        *handle = comms().add(comm);
        world().changed.notify_all();
        if (!blocking) {
            if (!comm->complete()) throw NcclRefusal{ncclInProgress};
        } else if (depth > 0) {
            beginners.push_back(comm);
        } else {
            wait_for_all({comm});
        }
    });
}

ncclResult_t give(
    Collective kind, const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root, void* handle,
    CUstream on) {
    return nccl_call([&] {
        const auto comm = comms().get(handle);
        Context& context = comm->context;
        if (context.lost != CUDA_SUCCESS) throw Refusal{context.lost};
        need(size_of(type) > 0 && root >= 0 && root < comm->clique->ranks);
        need(operation >= ncclSum && operation <= ncclAvg);
        need(comm->complete(), ncclInvalidUsage);
        const auto stream = stream_of(context, on);
        const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
        const Part part{kind, address(from), address(to), count, type, operation, root, &context, stream};
        const auto work = [=] { enqueue(*stream, take_part(comm, part)); };
        if (depth > 0) deferred.push_back(work);
        else work();
    });
}

}  // namespace

Handles<Comm>& comms() {
    static auto& all = *new Handles<Comm>;
    return all;
}

PRETEND_API ncclResult_t ncclGetVersion(int* version) {
    *version = 23099;
    return ncclSuccess;
}

PRETEND_API const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error";
        case ncclInternalError: return "internal error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclInvalidUsage: return "invalid usage";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
}

PRETEND_API const char* ncclGetLastError(void*) { return ""; }

PRETEND_API ncclResult_t ncclGetUniqueId(UniqueId* id) {
    return nccl_call([&] {
        static uint64_t last = 0;
        ++last;
        std::memset(id, 0, sizeof *id);
        std::memcpy(id, &last, sizeof last);
    });
}

PRETEND_API ncclResult_t ncclCommInitRank(void** handle, int ranks, UniqueId id, int rank) {
    return begin(handle, ranks, id, rank, true);
}

PRETEND_API ncclResult_t ncclCommInitRankConfig(void** handle, int ranks, UniqueId id, int rank, const Config* config) {
    return begin(handle, ranks, id, rank, !config || config->blocking != 0);
}

PRETEND_API ncclResult_t ncclCommCount(void* handle, int* count) {
    return nccl_call([&] { *count = comms().get(handle)->clique->ranks; });
}
PRETEND_API ncclResult_t ncclCommUserRank(void* handle, int* rank) {
    return nccl_call([&] { *rank = comms().get(handle)->rank; });
}
PRETEND_API ncclResult_t ncclCommCuDevice(void* handle, int* device) {
    return nccl_call([&] { *device = comms().get(handle)->context.ordinal; });
}

// In progress until all ranks are there; an error where this rank's device is lost or another rank has given up.
PRETEND_API ncclResult_t ncclCommGetAsyncError(void* handle, ncclResult_t* error) {
    return nccl_call([&] {
        const auto comm = comms().get(handle);
        *error = comm->context.lost != CUDA_SUCCESS     ? ncclUnhandledCudaError
                 : !comm->clique->aborted.empty()       ? ncclRemoteError
                 : !comm->complete()                    ? ncclInProgress
                                                        : ncclSuccess;
    });
}

PRETEND_API ncclResult_t ncclCommAbort(void* handle) {
    return nccl_call([&] {
        const auto comm = comms().take(handle);
        comm->aborted = true;
        comm->clique->aborted.insert(comm->rank);
        world().changed.notify_all();
    });
}

PRETEND_API ncclResult_t ncclCommFinalize(void* handle) {
    return nccl_call([&] { comms().get(handle); });
}

// What was given to it before is still done.
PRETEND_API ncclResult_t ncclCommDestroy(void* handle) {
    return nccl_call([&] { comms().take(handle); });
}

PRETEND_API ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}

PRETEND_API ncclResult_t ncclGroupEnd() {
    return nccl_call([&] {
        need(depth > 0, ncclInvalidUsage);
        if (--depth > 0) return;
        const auto begun = std::move(beginners);
        const auto works = std::move(deferred);
        beginners.clear(), deferred.clear();
        wait_for_all(begun);
        for (const auto& work : works) work();
    });
}

PRETEND_API ncclResult_t ncclAllReduce(
    const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, void* comm, CUstream stream) {
    return give(Collective::AllReduce, from, to, count, type, operation, 0, comm, stream);
}
PRETEND_API ncclResult_t ncclBroadcast(
    const void* from, void* to, size_t count, ncclDataType_t type, int root, void* comm, CUstream stream) {
    return give(Collective::Broadcast, from, to, count, type, ncclSum, root, comm, stream);
}
PRETEND_API ncclResult_t ncclReduce(
    const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root, void* comm, CUstream stream) {
    return give(Collective::Reduce, from, to, count, type, operation, root, comm, stream);
}
PRETEND_API ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, void* comm, CUstream stream) {
    return give(Collective::AllGather, from, to, count, type, ncclSum, 0, comm, stream);
}
PRETEND_API ncclResult_t ncclReduceScatter(
    const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, void* comm, CUstream stream) {
    return give(Collective::ReduceScatter, from, to, count, type, operation, 0, comm, stream);
}

}  // namespace pretend
