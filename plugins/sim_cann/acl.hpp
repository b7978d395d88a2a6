// How the entry points of libascendcl.so are declared. The types are those of AscendCL in C: enumerations are int, handles are void*.
#pragma once

#include "runtime.hpp"

#define SIM_CANN_ENTRY extern "C" SIM_CANN_API

namespace sim_cann {

/// The error for a function of AscendCL that exists, but is not played.
inline int refuse(const char* function) {
  return fail(kNotPlayed, std::string("EE9999: sim_cann does not play ") + function + "; it needs a real NPU");
}

}  // namespace sim_cann

/// What was put into streams since the start, and how often the host waited for one: "NAME COUNT" in lines, until the next call.
SIM_CANN_ENTRY const char* sim_cann_calls();
