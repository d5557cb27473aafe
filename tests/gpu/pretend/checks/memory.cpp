// Memory: what is out of bounds, freed or another device's is found, and the device is lost.

#include "check.hpp"

namespace {

// Every later call says so too, and a new context is as good as new.
void expect_lost(const char* what) {
    if (cuCtxSynchronize() != CUDA_ERROR_ILLEGAL_ADDRESS) expect(false, what, __FILE__, __LINE__);
    CUdeviceptr address = 0;
    REFUSED(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&address, 4));
}

void limits() {
    const Device device;
    size_t free = 0, total = 0, after = 0;
    OK(cuMemGetInfo_v2(&free, &total));
    EXPECT(free == total);
    CUdeviceptr address = 0;
    REFUSED(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, total + 1));
    const CUdeviceptr small = new_memory(100);
    EXPECT(small % 256 == 0);
    OK(cuMemGetInfo_v2(&after, &total));
    EXPECT(free - after == 256);
    // Fresh memory is no number.
    for (const float value : download(small, 25)) EXPECT(std::isnan(value));
    OK(cuMemFree_v2(small));
    REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(small));
    OK(cuMemGetInfo_v2(&after, &total));
    EXPECT(free == after);
    pretend_fault("oom:2");
    OK(cuMemFree_v2(new_memory(4)));
    REFUSED(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 4));
    OK(cuMemFree_v2(new_memory(4)));
}

}  // namespace

void check_memory() {
    limits();
    {
        // 20,000 elements where 16,384 are: beyond the page.
        const Device device;
        const CUdeviceptr a = new_memory(65536);
        add(a, a, a, 20000, nullptr);
        expect_lost("a kernel that writes behind a tensor is found");
    }
    {
        const Device device;
        const CUdeviceptr a = new_memory(4096), b = new_memory(4096);
        OK(cuMemFree_v2(a));
        add(b, a, b, 1024, nullptr);
        expect_lost("a freed argument is found");
    }
    {
        // 100 bytes, of which a kernel writes 108: on its page, and found when it is freed.
        const Device device;
        const CUdeviceptr a = new_memory(100);
        add(a, a, a, 27, nullptr);
        OK(cuCtxSynchronize());
        REFUSED(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2(a));
        expect_lost("what is written behind is found");
    }
    {
        const Device device;
        const CUdeviceptr a = new_memory(100), b = new_memory(104);
        OK(cuMemcpyDtoDAsync_v2(a, b, 104, nullptr));
        expect_lost("a copy that is too long is found");
    }
    {
        const Device device;
        const CUdeviceptr a = new_memory(100);
        add(a, a, a + 2, 4, nullptr);
        REFUSED(716, cuCtxSynchronize());
    }
    {
        const Device device;
        pretend_fault("lost:2");
        const CUdeviceptr a = new_memory(100);
        add(a, a, a, 4, nullptr);
        OK(cuCtxSynchronize());
        add(a, a, a, 4, nullptr);
        expect_lost("the second launch is the one");
    }
    {
        // A peer's memory, without access and with it; losing one device is none of the other's matter.
        const Device other(1);
        const CUdeviceptr there = upload({1, 2, 3, 4});
        CUcontext context = other.context;
        {
            const Device device;
            add(there, there, new_memory(16), 4, nullptr);
            expect_lost("a peer's memory is out of reach");
        }
        const Device device;
        OK(cuCtxEnablePeerAccess(context, 0));
        REFUSED(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context, 0));
        const CUdeviceptr here = new_memory(16);
        add(there, there, here, 4, nullptr);
        EXPECT(download(here, 4) == std::vector<float>({2, 4, 6, 8}));
    }
}
