#include "npu_train/tools/align/dump_section.hpp"
#include "npu_train/tools/align/monitor.hpp"
#include "npu_train/tools/analyze/profiled_fit.hpp"
#include "npu_train/tools/commands/main.hpp"
#include "npu_train/tools/memory/leak_watch.hpp"
#include "npu_train/tools/memory/out_of_memory.hpp"

namespace npu_train {

void add_tools(Parts& parts) {
  add_dump(parts);
  add_monitor(parts);
  add_profiler(parts);
  add_leak_watch(parts);
  add_memory_report(parts);
}

Parts tool_parts() {
  auto parts = builtin_parts();
  add_tools(parts);
  return parts;
}

}  // namespace npu_train
