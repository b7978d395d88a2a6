#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/data/loader.hpp"

namespace npu_train {

int64_t cpu_count() {
  int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max<int64_t>(1, CPU_COUNT(&set));
  return cgroup_limits().usable_cpus(cores);
}

int64_t parse_num_workers(const std::string& text) {
  if (text == "auto") return std::min<int64_t>(16, cpu_count());
  const auto workers = whole_number(text);
  check(workers && *workers >= 0 && *workers <= 1024, ErrorKind::Usage, "num_workers", "'", text,
        "' is neither auto nor a number from 0 to 1024");
  return *workers;
}

}  // namespace npu_train
