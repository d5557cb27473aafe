// Compiled programs as the pretend compiler writes them: a head that says the architecture, the source's text, and a check sum.

#pragma once
#include <string>

#include "context.hpp"

namespace pretend {

// The image of a program for sm_`architecture`.
std::string image_of(const std::string& text, int architecture);

// Drops a context's modules.
void drop_modules(Context& context);

}  // namespace pretend
