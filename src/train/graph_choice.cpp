#include "train/graph_choice.hpp"

#include "npu_train/core/log.hpp"
#include "npu_train/device/device_graph.hpp"
#include "npu_train/device/portable_random.hpp"

namespace npu_train::detail {

bool captures_graphs(const TrainerOptions& options, const Device& device, const Task& task, const Strategy& strategy) {
  const bool asked = options.cuda_graphs == "true";
  if (options.cuda_graphs == "false" || (!asked && device.kind != "cuda")) return false;
  auto why_not = DeviceGraph::why_not(device);
  if (why_not.empty() && !asked && !task.capturable()) why_not = "the task does not say that it can be captured (Task::capturable)";
  if (why_not.empty() && !strategy.capturable()) why_not = "the backward waits for other ranks";
  if (why_not.empty() && PortableRandom::is_on()) why_not = "rng: portable draws on the host";
  if (why_not.empty() && options.on_oom == "retry") why_not = "trainer.on_oom: retry cuts windows into other shapes";
  if (why_not.empty() && options.gradient_checkpointing != "none")
    why_not = "trainer.gradient_checkpointing keeps the host in the backward";
  if (why_not.empty()) return true;
  if (asked)
    log_warning("trainer.cuda_graphs: off: ", why_not);
  else
    log_info("trainer.cuda_graphs: off: ", why_not);
  return false;
}

}  // namespace npu_train::detail
