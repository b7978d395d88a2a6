// Declares entry points of libascendcl.so with the C types of AscendCL: enumerations are int, handles are void*.
#pragma once

#include "runtime.hpp"

#define SIM_CANN_ENTRY extern "C" SIM_CANN_API

namespace sim_cann {

/// Returns the error for a function of AscendCL that exists but is not simulated.
inline int refuse(const char* function) {
  return fail(kNotPlayed, std::string("EE9999: sim_cann does not play ") + function + "; it needs a real NPU");
}

}  // namespace sim_cann

/// Returns how often each function and operator was put into a stream, and how often the host waited, as lines "NAME COUNT". The text is
/// valid until the next call.
SIM_CANN_ENTRY const char* sim_cann_calls();
