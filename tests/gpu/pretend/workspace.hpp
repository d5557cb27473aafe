// Scratch memory that a library's call is given: in use from its beginning to its end, which are two steps of the stream.
//
// What it holds is written at the beginning and looked at at the end, so that two calls that share it at once are found.

#pragma once
#include "stream.hpp"

namespace pretend {

// Work that holds `bytes` of scratch at `address`, which must be the device's, while `body` is done.
Work with_workspace(Context& context, CUdeviceptr address, size_t bytes, std::function<void()> body);

}  // namespace pretend
