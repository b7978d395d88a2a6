#include "engine/rank_setup.hpp"

#include "engine/strategy_choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/dist/data_parallel.hpp"
#include "npu_train/dist/offload.hpp"

namespace npu_train {

namespace {

constexpr int kManyRanks = 64;  // with more ranks, all_to_all costs more than it saves

/// Compares trainer.devices with the launch. Accepts fewer processes from our own launcher, which may have started fewer after a failure or
/// by --nproc.
void check_devices(const Launch& launch, const std::string& devices) {
  const int wanted = parse_devices(devices);
  if (wanted == 0 || wanted == launch.local_world_size || launch.launcher == "npu_train") return;
  check(!launch.launcher.empty(), ErrorKind::Usage, "trainer.devices", "this process was started alone, and ", wanted,
        " are requested; hint: train_app CONFIG starts them, and npu_tool launch --nproc ", wanted, " PROGRAM those of another program");
  throw Error(
      ErrorKind::Usage, "trainer.devices",
      str_cat(wanted, " processes are requested, and ", launch.launcher, " has started ", launch.local_world_size, " on this machine"),
      "leave it at auto, or start as many");
}

// Reports the keys set by a preset, and those that the configuration overrides.
void report_preset(const DistOptions& dist) {
  const auto own = to_node(dist), values = DistOptions::preset_values(dist.preset);
  std::vector<std::string> set, given;
  for (const auto& value : values.members()) {
    const auto* found = own.find(value.key);
    auto& list = found->scalar() == value.value.scalar() ? set : given;
    list.push_back("dist." + value.key + "=" + found->scalar());
  }
  log_info("dist.preset=", dist.preset, " sets ", set.empty() ? "nothing" : join(set), given.empty() ? "" : "; the configuration has ",
           join(given));
}

void report_offload(const DistOptions& dist, const Device& device) {
  if (dist.offload == "none") return;
  if (device.is_cpu())
    log_info("dist.offload=", dist.offload, ": changes nothing, because the device is a CPU, where the optimizer is on the host anyway");
  else
    log_info("dist.offload=", dist.offload, ": the optimizer computes on the host, whose memory has its state and averages of weights");
}

// Returns `before`, followed by the compression method and its first step; "" without compression.
std::string compressed_by(const char* before, const DistOptions& dist) {
  if (dist.compression == "none") return {};
  const auto start = dist.compression_start;
  return before + dist.compression + (start == 0 ? std::string() : " from step " + std::to_string(start + 1) + " on");
}

// Reports which ranks reduce together. Call it after the strategy was reported.
void report_groups(const ProcessGroup& group, const DistOptions& dist) {
  if (!dist.has_groups()) return;
  const int size = dist.group_size_of(group), count = (group.size() + size - 1) / size;
  if (count == 1)
    log_info("dist.group_size=", dist.group_size, ": all ", group.size(), " ranks are one group",
             dist.compression == "none" ? "" : ", inside which nothing is compressed");
  else
    log_info("dist.group_size=", dist.group_size, ": ", count, " groups of ", size, " ranks add inside, then the first ranks of all groups",
             compressed_by(", by ", dist));
}

}  // namespace

RankSetup::RankSetup(const RunConfig& config, const Device& device, const Parts& parts, std::function<bool()> stopped)
    : device_(device), offloads_(config.dist.offload == "optimizer" && !device.is_cpu()) {
  const auto launch = launch_of_environment();
  group_ = parts.process_group ? parts.process_group(config.dist) : nullptr;
  check(group_ != nullptr || !parts.process_group, ErrorKind::Usage, "Parts::process_group", "the function returned no group");
  if (group_ == nullptr) check_devices(launch, config.trainer.devices);
  const int world = group_ != nullptr ? group_->size() : launch.world_size;
  first_number_ = group_ != nullptr ? world : launch.first_world_size;
  starter_ = group_ != nullptr ? std::string("the program") : launch.launcher;
  const auto& wanted = config.trainer.strategy;
  check(wanted != "single" || world == 1, ErrorKind::Usage, "trainer.strategy", "single is one process, and ", starter_, " has started ",
        world, "; allowed with several: auto, ddp, zero1, zero2, zero3");
  if (world == 1) {
    if (config.dist.preset != "none")
      log_info("dist.preset=", config.dist.preset, ": one process sends nothing, so there is nothing to optimize");
    if (wanted.starts_with("zero")) log_info("trainer.strategy=", wanted, ": one process has nothing to divide");
    const int devices = device.is_cpu() ? 1 : backend_of(device).count();
    if (launch.launcher.empty() && devices > 1)
      log_info("one of ", devices, " devices is used; train_app CONFIG trainer.devices=", devices, " uses all of them");
    group_ = nullptr;
    set_strategy(std::make_shared<SingleDeviceStrategy>());
    report_offload(config.dist, device);
    return;
  }
  if (group_ == nullptr) {
    check_collectives(launch.local_world_size, device, config.dist);  // checked before this rank waits for the others
    group_ = make_process_group(launch, config.dist, std::move(stopped));
  }
  sharding_ = sharding_of(wanted).value_or(Sharding::None);
  auto dist = config.dist;
  is_open_ = wanted == "auto";
  if (is_open_) dist.shard_size = "auto";  // prepares for shards, which choose() may introduce
  set_strategy(std::make_shared<DataParallelStrategy>(group_, dist, device.c10(), sharding_));
  if (strategy_->ranks().is_main()) report_offload(config.dist, device);
}

void RankSetup::set_strategy(std::shared_ptr<Strategy> strategy) {
  strategy_ = offloads_ ? std::make_shared<OffloadedStrategy>(std::move(strategy)) : std::move(strategy);
}

std::shared_ptr<Strategy> RankSetup::another(const DistOptions& dist) const {
  std::shared_ptr<Strategy> out = std::make_shared<SingleDeviceStrategy>();
  if (group_ != nullptr) out = std::make_shared<DataParallelStrategy>(group_, dist, device_.c10(), sharding_);
  return offloads_ ? std::make_shared<OffloadedStrategy>(std::move(out)) : out;
}

void RankSetup::choose(const RunConfig& config, const ParameterSet& all, Sharding most, const Parts& parts) {
  if (group_ == nullptr) return;
  if (std::exchange(is_open_, false)) divide(config, all, most, parts);
  if (strategy_->ranks().is_main()) report(config.dist);
}

void RankSetup::divide(const RunConfig& config, const ParameterSet& all, Sharding most, const Parts& parts) {
  const auto trained = all.filter([](const Parameter& p) { return p.value.requires_grad(); });
  const auto total = static_cast<double>(backend_of(device_).memory(device_).total);
  const double own = device_.is_cpu() ? total / group_->local_size() : total;
  double frozen = 0;
  for (const auto& p : all)
    if (!p.value.requires_grad()) frozen += static_cast<double>(p.value.nbytes());
  auto chosen = Sharding::None;
  TrainingState state;
  // Builds a probe optimizer and task only if they can change the result.
  if (total > 0 && least_sharding(most_state_of(trained, config, offloads_), own, frozen, 2, Sharding::Optimizer) != Sharding::None) {
    state = state_of(trained, config, parts, offloads_);
    most = most_sharding(config, trained, most, parts);
    chosen = least_sharding(state, own, frozen, config.dist.shard_size_of(*group_, most), most);
  }
  double largest = 0;
  for (const auto& of_rank : group_->gather("strategy", std::vector<double>{static_cast<double>(chosen)}))
    largest = std::max(largest, of_rank.front());
  sharding_ = static_cast<Sharding>(largest);
  if (sharding_ == Sharding::None) return;
  set_strategy(std::make_shared<DataParallelStrategy>(group_, config.dist, device_.c10(), sharding_));
  if (!strategy_->ranks().is_main()) return;
  const char* name = kStrategyNames.at(static_cast<size_t>(sharding_));
  if (chosen != sharding_)
    log_info("trainer.strategy=auto: ", name, ", which the memory of another rank needs");
  else
    log_info("trainer.strategy=auto: parameters, gradients and optimizer state of ", human_bytes(frozen + state.all()),
             " would take more than half of the memory of ", device_.str(), ", ", human_bytes(own), "; a rank has ",
             human_bytes(frozen + state.divided(sharding_, config.dist.shard_size_of(*group_, sharding_))), " of them with ", name);
}

void RankSetup::report(const DistOptions& given) const {
  const auto transport = group_->transport(device_.c10());
  const auto dist = given.resolved(transport, sharding_);
  const int world = group_->size();
  const bool ordered = strategy_->adds_in_order();
  const char* shards = sharding_ == Sharding::None        ? ""
                       : sharding_ == Sharding::Optimizer ? ", optimizer state in shards (zero1)"
                       : sharding_ == Sharding::Gradients ? ", optimizer state and gradients in shards (zero2)"
                                                          : ", parameters, gradients and optimizer state in shards (zero3)";
  log_info(world, " ranks, started by ", starter_, ": data parallel over ", transport, ", ", ordered ? "ordered" : "native", " sums, ",
           dist.reduce == "window" ? "once a window" : "after each micro-batch", shards,
           dist.has_groups() ? "" : compressed_by(", gradients compressed by ", dist));
  if (ordered && transport != ProcessGroup::kHostTransport && world > kManyRanks)
    log_warning("dist.reduction=ordered sends ", world - 1, " messages a bucket from each rank, and ", transport,
                " needs memory for each of them; above ", kManyRanks, " ranks dist.reduction=native is faster");
  if (given.preset != "none") report_preset(given);
  report_groups(*group_, given);
}

namespace {

// Collects every scalar value under its path, such as "optimizer.lr".
void collect_values(const ConfigNode& node, const std::string& path, std::map<std::string, std::string>& out) {
  const auto under = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const auto& member : node.members()) collect_values(member.value, under(member.key), out);
  for (size_t i = 0; i < node.items().size(); ++i) collect_values(node.items()[i], under(std::to_string(i)), out);
  if (node.is_scalar()) out[path] = node.scalar();
}

std::map<std::string, std::string> values_of(const std::string& yaml, size_t rank) {
  std::map<std::string, std::string> out;
  collect_values(parse_yaml(yaml, "rank " + std::to_string(rank)), "", out);
  return out;
}

}  // namespace

void check_equal_on_ranks(Ranks& ranks, ConfigNode resolved) {
  if (ranks.size() == 1) return;
  resolved.put({.key = "npu_train", .key_mark = {}, .value = NPU_TRAIN_VERSION});
  const auto all = ranks.gather(to_yaml(resolved));
  const auto main = values_of(all[0], 0);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto other = values_of(all[r], r);
    auto paths = main;
    paths.insert(other.begin(), other.end());
    for (const auto& entry : paths) {
      const auto& path = entry.first;
      const auto in = [&](const auto& values) { return values.contains(path) ? path + "=" + values.at(path) : "no " + path; };
      check(in(main) == in(other), ErrorKind::Usage, "Trainer", "rank ", r, " has ", in(other), " where rank 0 has ", in(main),
            "; hint: all ranks must run the same program with the same configuration");
    }
  }
}

std::vector<at::Tensor> weights_of(Task& task, const ParameterSet& parameters) {
  auto out = parameters.values();
  for (const auto& [name, buffer] : task.buffers()) out.push_back(buffer);
  return out;
}

double lr_scale_of_ranks(const Ranks& ranks, int first_number, const std::string& lr_scaling) {
  const double scale = lr_scaling == "linear" ? first_number : lr_scaling == "sqrt" ? std::sqrt(first_number) : 1;
  if (scale != 1 && ranks.is_main())
    log_info("trainer.lr_scaling=", lr_scaling, ": learning rates times ", scale, " for ", first_number, " ranks");
  return scale;
}

int64_t micro_batches_of_rank(const Ranks& ranks, int first_number, int64_t accumulated) {
  const int64_t times = first_number / ranks.size();
  if (times > 1 && ranks.is_main())
    log_info("restarted with ", ranks.size(), " of ", first_number, " ranks: each accumulates ", times * accumulated,
             " micro-batches in the place of ", accumulated, ", so that the global batch and the learning rate stay the same");
  return times * accumulated;
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
