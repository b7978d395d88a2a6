/// The name of this machine.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace npu_train {

/// Returns the name that the system reports, or "localhost".
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace npu_train
