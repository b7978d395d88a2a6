/// The host memory of the machine and of this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/core/cgroup.hpp"

namespace npu_train {

/// Returns the bytes of the line "KEY:   123 kB" in a text such as /proc/meminfo or /proc/self/status; nullopt without such a line, and for
/// numbers below 0 and above 2^50.
std::optional<int64_t> kib_value(const std::string& text, const std::string& key);

/// Returns the bytes that can be allocated before the kernel refuses or ends a process: the least of three values: free memory and swap
/// space of the machine, the limit of the control groups, and the limit on private memory (`ulimit -d`). INT64_MAX if none is reported. By
/// default, reads the files of this machine.
int64_t free_host_bytes(const SystemFiles& files = {});

}  // namespace npu_train
