#include "host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "npu_train/core/cgroup.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

// Bytes that the kernel can give without ending a process; no limit if it does not report them.
int64_t free_host_bytes() {
  std::ifstream file("/proc/meminfo");
  int64_t kib = 0, sum = 0;
  bool found = false;
  for (std::string key, unit; file >> key >> kib; std::getline(file, unit)) {
    if (key != "MemAvailable:" && key != "SwapFree:") continue;
    sum += kib * 1024;
    found = found || key == "MemAvailable:";
  }
  int64_t out = found ? sum : std::numeric_limits<int64_t>::max();
  const auto group = cgroup_limits();
  if (group.memory) out = std::min(out, std::max<int64_t>(0, *group.memory - group.memory_used));
  return out;
}

}  // namespace

void check_host_memory(const char* network, int64_t parameters) {
  constexpr int64_t kSmall = int64_t{1} << 28;  // not worth reading files
  if (parameters < kSmall) return;
  const int64_t needed = 4 * parameters, available = free_host_bytes();
  if (needed <= available) return;
  throw Error(ErrorKind::OutOfMemory, network,
              c10::str(with_commas(parameters), " parameters in fp32 need ", human_bytes(static_cast<double>(needed)), ", and ",
                       human_bytes(static_cast<double>(available)), " of this host are free"),
              "use a host with more memory, or fewer layers: memory and FLOPs grow by the same amount with each (docs/language.md)");
}

}  // namespace npu_train::detail
