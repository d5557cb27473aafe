// Streams: what is not ordered comes in another order some time, what is ordered never does.

#include "check.hpp"

namespace {

constexpr unsigned SEEDS = 20, COUNT = 1000;

// A producer on one stream, a consumer on another; how many of 20 seeds give a wrong sum.
unsigned wrong_sums(bool waits, const char* fault = "") {
    unsigned wrong = 0;
    for (unsigned seed = 0; seed < SEEDS; ++seed) {
        pretend_seed(seed);
        pretend_fault(fault);
        const Device device;
        const CUfunction function = kernel("elementwise.cu", "add", "_f32");
        const std::vector<float> values = integers(COUNT, seed);
        const CUdeviceptr a = upload(values), between = new_memory(4 * COUNT), y = new_memory(4 * COUNT);
        const CUstream first = new_stream(), second = new_stream();
        const CUevent ready = new_event();
        add(a, a, between, COUNT, first, function);
        OK(cuEventRecord(ready, first));
        if (waits) OK(cuStreamWaitEvent(second, ready, 0));
        add(a, between, y, COUNT, second, function);
        const std::vector<float> sums = download(y, COUNT);
        for (size_t at = 0; at < COUNT; ++at) {
            if (sums[at] == 3 * values[at]) continue;
            ++wrong;
            break;
        }
    }
    return wrong;
}

// Pinned memory is read when the copy is done, other memory when it is asked for.
unsigned wrong_uploads(bool pinned, bool waits) {
    unsigned wrong = 0;
    for (unsigned seed = 0; seed < SEEDS; ++seed) {
        pretend_seed(seed);
        const Device device;
        const CUdeviceptr to = new_memory(4);
        const CUstream stream = new_stream();
        float other = 1, *host = pinned ? new_pinned(1) : &other;
        *host = 1;
        OK(cuMemcpyHtoDAsync_v2(to, host, 4, stream));
        if (waits) OK(cuStreamSynchronize(stream));
        *host = 2;
        wrong += download(to, 1)[0] != 1;
    }
    return wrong;
}

// What waits for an event waits for its latest record at that time, and for none if there is none.
void events() {
    const Device device;
    const CUstream first = new_stream(), second = new_stream();
    const CUevent event = new_event(0), untimed = new_event(), end = new_event(0);
    OK(cuEventQuery(event));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuStreamSynchronize(second));
    float milliseconds = -1;
    REFUSED(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, event, end));
    const CUdeviceptr memory = new_memory(4);
    OK(cuEventRecord(event, first));
    OK(cuMemsetD8Async(memory, 0, 4, first));
    OK(cuEventRecord(end, first));
    OK(cuEventRecord(untimed, first));
    REFUSED(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&milliseconds, event, end));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime_v2(&milliseconds, event, end));
    EXPECT(milliseconds >= 0);
    OK(cuEventSynchronize(untimed));
    REFUSED(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, event, untimed));
    // The wait is for the record that stands; a later one, which never comes to pass before, is no matter.
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    const CUevent from_second = new_event();
    OK(cuEventRecord(from_second, second));
    OK(cuStreamWaitEvent(first, from_second, 0));
    OK(cuEventRecord(event, first));
    OK(cuStreamSynchronize(first));
    // Asked often enough, everything comes to pass.
    OK(cuMemsetD8Async(memory, 1, 4, first));
    OK(cuEventRecord(event, first));
    unsigned asked = 0;
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY && asked < 10000) ++asked;
    EXPECT(asked < 10000);
    OK(cuStreamQuery(first));
    OK(cuEventDestroy_v2(event));
    REFUSED(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, first));
    OK(cuStreamDestroy_v2(second));
    REFUSED(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(second));
}

}  // namespace

void check_streams() {
    EXPECT(wrong_sums(false) > 0);
    EXPECT(wrong_sums(true) == 0);
    EXPECT(wrong_sums(true, "wait:1") > 0);
    EXPECT(wrong_sums(true, "wait:2") == 0);
    pretend_fault("");
    EXPECT(wrong_uploads(true, false) > 0);
    EXPECT(wrong_uploads(true, true) == 0);
    EXPECT(wrong_uploads(false, false) == 0);
    events();
}
