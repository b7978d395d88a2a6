#include "bench_dist.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/product_speed.hpp"
#include "npu_train/device/threads.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/bench/machine_speed.hpp"
#include "npu_train/tools/bench/stages.hpp"
#include "npu_train/tools/launch/launcher.hpp"
#include "tools/commands/train_app/launch_options.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;

// Returns the command of a rank. `words`: the file and the overrides of the configuration.
std::vector<std::string> bench_command(const std::vector<std::string>& words, const char* what, const fs::path& report,
                                       const BenchOptions& o) {
  std::vector<std::string> out{fs::read_symlink("/proc/self/exe").string(), "bench"};
  out.insert(out.end(), words.begin(), words.end());
  const auto add = [&](const char* option, const std::string& value) { out.insert(out.end(), {option, value}); };
  out.emplace_back("--no-machine");
  add("--what", what);
  add("--batch", std::to_string(o.batch));
  add("--steps", std::to_string(o.steps));
  add("--warmup", std::to_string(o.warmup));
  add("--rank-report", report.string());
  if (!o.trace.empty()) add("--trace", fs::absolute(o.trace).string());
  return out;
}

void check_ranks(int ranks) {
  check(ranks >= 1 && ranks <= LaunchOptions::kMaxRanks, ErrorKind::Usage, "bench", "--nproc is ", ranks, "; allowed: 1 to ",
        LaunchOptions::kMaxRanks);
}

struct World {
  std::optional<BenchReport> report{};
  int exit_code = 0;
  std::string failure{};
  bool interrupted() const {  // whether the user has interrupted it
    constexpr int kBySignal = 128;
    return exit_code > kBySignal;
  }
};

World run_world(std::vector<std::string> command, int ranks, const fs::path& report) {
  const auto result = launch_ranks(
      {.command = std::move(command), .nproc = ranks, .grace = std::chrono::seconds(5), .kill_after = std::chrono::seconds(2)});
  if (result.exit_code == 0 && fs::exists(report)) return {.report = read_bench_report(report)};
  return {.exit_code = result.exit_code == 0 ? static_cast<int>(ErrorKind::Internal) : result.exit_code,
          .failure = result.message.empty() ? "ended with exit code " + std::to_string(result.exit_code) : result.message};
}

int64_t threads_of_rank(const RunConfig& config, int ranks) {
  return config.trainer.threads > 0 ? config.trainer.threads : std::max<int64_t>(1, cpu_count() / ranks);
}

// Measures the peak speeds that the table's shares refer to, with as many threads as all ranks together. Call it after the worlds have run,
// since it initialises the device.
MachineSpeed machine_speed(const RunConfig& config, int ranks) {
  const auto device = run_device(config);
  const ThreadCount threads(static_cast<int>(std::min<int64_t>(cpu_count(), ranks * threads_of_rank(config, ranks))));
  const auto dtype = config.precision.starts_with("16") ? at::kHalf : at::kBFloat16;
  MachineSpeed out{.products = gemm_flops(device), .copies = copy_bandwidth(device)};
  if (has_units_for(device, dtype)) out.low_products = gemm_flops(device, dtype);
  if (!device.is_cpu()) out.devices = std::min(ranks, backend_of(device).count());
  return out;
}

}  // namespace

std::vector<int> default_worlds() {
  std::vector<int> out{1, 2};
  while (out.back() * 2 <= cpu_count() && out.size() < 4) out.push_back(out.back() * 2);
  return out;
}

BenchReport bench_worlds(const RunConfig& given, const BenchOptions& options, std::vector<int> nproc, const Parts& parts) {
  if (nproc.empty()) nproc = default_worlds();
  for (const int ranks : nproc) check_ranks(ranks);
  const int most = *std::max_element(nproc.begin(), nproc.end());
  auto config = given;
  config.trainer.devices = "auto";
  // All worlds have the same number of threads per rank, so that they differ only in the number of ranks.
  if (config.trainer.threads == 0) config.trainer.threads = std::max<int64_t>(1, cpu_count() / most);
  const npu_train::detail::ScratchFolder scratch("bench");
  const auto file = scratch.path / "config.yaml";
  write_file_atomic(file, to_yaml(resolved(config, parts)));

  std::vector<BenchReport> worlds;
  for (const int ranks : nproc) {
    const auto report = scratch.path / ("world" + std::to_string(ranks) + ".json");
    auto of_world = options;
    if (ranks != most) of_world.trace.clear();
    auto world = run_world(bench_command({file.string()}, "dist", report, of_world), ranks, report);
    if (world.report) {
      worlds.push_back(std::move(*world.report));
      continue;
    }
    worlds.push_back({.model = config.model.name, .device = config.device, .precision = config.precision, .exit_code = world.exit_code});
    worlds.back().rows.push_back({.section = "dist", .name = std::to_string(ranks) + " ranks", .failure = world.failure});
    if (world.interrupted()) break;
  }
  std::stable_partition(worlds.begin(), worlds.end(),
                        [](const BenchReport& w) { return w.exit_code == 0; });  // joined_worlds() uses the description of the first one
  return joined_worlds(std::move(worlds));
}

BenchReport bench_stage_worlds(const std::vector<std::string>& words, const RunConfig& config, const BenchOptions& options, int ranks,
                               int64_t seeds, const Parts& parts) {
  check_ranks(ranks);
  check(!config.data.name.empty(), ErrorKind::Usage, "bench", "--what stages: no data; give CONFIG with the section data");
  auto stages = training_stages(config, ranks, parts);
  const npu_train::detail::ScratchFolder scratch("bench");
  const auto report = scratch.path / "world.json";
  BenchReport out{.model = config.model.name, .device = config.device, .precision = config.precision};
  bool described = false;
  // The stages are interleaved, so that slower and faster periods of the machine affect all of them.
  for (int64_t seed = 0; seed < seeds; ++seed) {
    auto given = words;
    given.insert(given.end(), {"trainer.devices=auto", "seed=" + std::to_string(config.seed + seed)});
    if (config.trainer.threads == 0) given.push_back("trainer.threads=" + std::to_string(threads_of_rank(config, ranks)));
    for (auto& stage : stages) {
      given.insert(given.end(), stage.settings.begin(), stage.settings.end());
      if (!stage.failure.empty()) continue;
      fs::remove(report);
      auto world = run_world(bench_command(given, "stages", report, options), ranks, report);
      if (world.interrupted()) {
        out.exit_code = world.exit_code;
        out.notes.emplace_back("interrupted; later trainings are missing");
        add_stages(out, stages, {});
        return out;
      }
      if (!world.report) {
        stage.failure = world.failure;
        if (out.exit_code == 0) out.exit_code = world.exit_code;
        continue;
      }
      const auto* row = world.report->row("stages");
      check(row != nullptr, ErrorKind::Internal, "bench", "rank 0 reported no training of the stage ", stage.name);
      stage.runs.push_back(*row);
      if (described) continue;
      described = true;
      world.report->rows.clear();
      world.report->exit_code = out.exit_code;
      out = std::move(*world.report);
    }
  }
  const auto machine = machine_speed(config, ranks);
  out.gemm_flops = machine.products;
  out.copy_bytes_per_second = machine.copies;
  add_stages(out, stages, machine);
  return out;
}

std::optional<BenchReport> bench_as_rank(const RunConfig& config, const BenchOptions& options, const std::string& report,
                                         const Parts& parts) {
  const auto rank = launch_of_environment().rank;
  std::optional<BenchReport> out;
  end_with_peer([&] {
    const ScopedLogSink silence{LogSink()};
    out = run_bench(config, options, parts);
  });
  if (rank != 0) return std::nullopt;
  if (!report.empty()) save_json(report, to_json(*out));
  return out;
}

}  // namespace npu_train::cli
