#include "engine/ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/dist/data_parallel.hpp"
#include "npu_train/dist/launch.hpp"

namespace npu_train {

std::shared_ptr<Strategy> make_strategy(const RunConfig& config) {
  const auto launch = launch_of_environment();
  if (launch.world_size == 1) return std::make_shared<SingleDeviceStrategy>();
  auto strategy = std::make_shared<DataParallelStrategy>(make_process_group(launch, config.dist), config.dist);
  if (strategy->is_main())
    log_info(launch.world_size, " ranks, started by ", launch.launcher, ": data parallel over Gloo, ", config.dist.reduction, " sums, ",
             config.dist.reduce == "window" ? "once a window" : "after each micro-batch");
  return strategy;
}

void check_equal_on_ranks(Strategy& strategy, const ConfigNode& resolved) {
  if (strategy.world_size() == 1) return;
  const auto all = strategy.gather("version: " NPU_TRAIN_VERSION "\n" + to_yaml(resolved));
  for (size_t r = 1; r < all.size(); ++r) {
    std::istringstream main(all[0]), other(all[r]);
    for (std::string expected, given; std::getline(main, expected), std::getline(other, given), main || other;)
      check(expected == given, ErrorKind::Usage, "Trainer", "rank ", r, " has '", given, "' where rank 0 has '", expected,
            "'; hint: all ranks must run the same program with the same configuration");
  }
}

std::vector<at::Tensor> weights_of(Task& task) {
  auto out = task.parameters().values();
  for (const auto& [name, buffer] : task.buffers()) out.push_back(buffer);
  return out;
}

double lr_scale_of_ranks(const Strategy& strategy, const std::string& lr_scaling) {
  const auto ranks = static_cast<double>(strategy.world_size());
  const double scale = lr_scaling == "linear" ? ranks : lr_scaling == "sqrt" ? std::sqrt(ranks) : 1;
  if (scale != 1 && strategy.is_main())
    log_info("trainer.lr_scaling=", lr_scaling, ": learning rates times ", scale, " for ", ranks, " ranks");
  return scale;
}

void share_workers(DataOptions& data) {
  const auto ranks = launch_of_environment().local_world_size;
  if (ranks > 1 && data.num_workers == "auto") data.num_workers = std::to_string(std::max<int64_t>(1, parse_num_workers("auto") / ranks));
}

int threads_of_rank(const RunConfig& config) {
  const auto ranks = launch_of_environment().local_world_size;
  if (config.trainer.threads > 0 || ranks == 1 || std::getenv("OMP_NUM_THREADS") != nullptr)
    return static_cast<int>(config.trainer.threads);
  return static_cast<int>(std::max<int64_t>(1, cpu_count() / ranks));
}

}  // namespace npu_train
