// NCCL: ranks are threads, each with a device.

#include <thread>

#include "check.hpp"

namespace {

// Runs `body(rank, communicator, stream)` on two threads.
template <class Body>
void on_two(Body body) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    const auto rank = [&](int own) {
        const Device device(own);
        void* comm = nullptr;
        OK(ncclCommInitRank(&comm, 2, id, own));
        body(own, comm, new_stream());
    };
    std::thread first(rank, 0), second(rank, 1);
    first.join(), second.join();
}

void sums() {
    on_two([](int rank, void* comm, CUstream stream) {
        const CUdeviceptr from = upload(integers(1000, unsigned(rank))), to = new_memory(4000), all = new_memory(4);
        for (int turn = 0; turn < 3; ++turn) OK(ncclAllReduce(pointer(from), pointer(to), 1000, 7, 0, comm, stream));
        OK(cuMemcpyDtoDAsync_v2(all, from, 4, stream));
        OK(ncclGroupStart());
        OK(ncclBroadcast(pointer(all), pointer(all), 1, 7, 1, comm, stream));
        OK(ncclGroupEnd());
        const auto a = integers(1000, 0), b = integers(1000, 1), sum = download(to, 1000);
        for (size_t at = 0; at < 1000; ++at) EXPECT(sum[at] == a[at] + b[at]);
        EXPECT(download(all, 1)[0] == b[0]);
        int error = -1;
        OK(ncclCommGetAsyncError(comm, &error));
        EXPECT(error == 0);
        OK(ncclCommDestroy(comm));
    });
}

// One that never ends is asked about until patience ends; after an abort the stream is free.
void stalled() {
    pretend_fault("stall:1");
    on_two([](int, void* comm, CUstream stream) {
        const CUdeviceptr of = upload({1, 2});
        OK(ncclAllReduce(pointer(of), pointer(of), 2, 7, 0, comm, stream));
        for (int asked = 0; asked < 100; ++asked) REFUSED(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        OK(ncclCommAbort(comm));
        OK(cuStreamSynchronize(stream));
    });
    pretend_fault("");
}

}  // namespace

void check_collectives() {
    sums();
    stalled();
}
