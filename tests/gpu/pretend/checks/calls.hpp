// The libraries' calls that the checks make.

#pragma once
#include "driver.hpp"

extern "C" {
void pretend_seed(uint64_t seed);
void pretend_fault(const char* text);

CUresult cuInit(unsigned);
CUresult cuDeviceGetCount(int*);
CUresult cuDeviceGet(CUdevice*, int);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize();
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t*, size_t*);
CUresult cuMemHostAlloc(void**, size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime_v2(float*, CUevent, CUevent);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture(CUstream, CUgraph*);
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuModuleLoadData(CUmodule*, const void*);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuLaunchKernel(
    CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**);

int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int nvrtcDestroyProgram(void**);
int nvrtcCompileProgram(void*, int, const char* const*);
int nvrtcGetCUBINSize(void*, size_t*);
int nvrtcGetCUBIN(void*, char*);
int nvrtcGetProgramLogSize(void*, size_t*);
int nvrtcGetProgramLog(void*, char*);

int cudnnCreate(void**);
int cudnnDestroy(void*);
int cudnnSetStream(void*, CUstream);
int cudnnCreateTensorDescriptor(void**);
int cudnnCreateFilterDescriptor(void**);
int cudnnCreateConvolutionDescriptor(void**);
int cudnnCreateActivationDescriptor(void**);
int cudnnSetTensor4dDescriptor(void*, int, int, int, int, int, int);
int cudnnSetFilter4dDescriptor(void*, int, int, int, int, int, int);
int cudnnSetConvolution2dDescriptor(void*, int, int, int, int, int, int, int, int);
int cudnnSetConvolutionGroupCount(void*, int);
int cudnnSetConvolutionMathType(void*, int);
int cudnnSetActivationDescriptor(void*, int, int, double);
int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int, size_t*);
int cudnnConvolutionForward(
    void*, const void*, void*, const void*, void*, const void*, void*, int, void*, size_t, const void*, void*, void*);
int cudnnConvolutionBackwardData(
    void*, const void*, void*, const void*, void*, const void*, void*, int, void*, size_t, const void*, void*, void*);
int cudnnConvolutionBackwardFilter(
    void*, const void*, void*, const void*, void*, const void*, void*, int, void*, size_t, const void*, void*, void*);
int cudnnConvolutionBiasActivationForward(
    void*, const void*, void*, const void*, void*, const void*, void*, int, void*, size_t, const void*, void*, const void*,
    void*, const void*, void*, void*, void*);

int cublasLtCreate(void**);
int cublasLtMatmulDescCreate(void**, int, int);
int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t);
int cublasLtMatrixLayoutCreate(void**, int, uint64_t, uint64_t, int64_t);
int cublasLtMatmulPreferenceCreate(void**);
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t);
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int*);
int cublasLtMatmul(
    void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,
    const void*, void*, size_t, CUstream);

struct ncclUniqueId {
    char internal[128];
};
int ncclGetUniqueId(ncclUniqueId*);
int ncclCommInitRank(void**, int, ncclUniqueId, int);
int ncclCommAbort(void*);
int ncclCommDestroy(void*);
int ncclCommGetAsyncError(void*, int*);
int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void*, void*, size_t, int, int, void*, CUstream);
int ncclBroadcast(const void*, void*, size_t, int, int, void*, CUstream);
}
