#include "bench_dist.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "launch_options.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/dist/launch.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/scratch_folder.hpp"
#include "npu_train/tools/launch/launcher.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> rank_command(const fs::path& config, const fs::path& report, const BenchOptions& o, bool traced) {
  std::vector<std::string> out{fs::read_symlink("/proc/self/exe").string(), "bench", config.string(), "--what", "dist", "--no-machine"};
  const auto add = [&](const char* option, const std::string& value) { out.insert(out.end(), {option, value}); };
  add("--batch", std::to_string(o.batch));
  add("--steps", std::to_string(o.steps));
  add("--warmup", std::to_string(o.warmup));
  add("--rank-report", report.string());
  if (traced && !o.trace.empty()) add("--trace", fs::absolute(o.trace).string());
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
  for (const int ranks : nproc)
    check(ranks >= 1 && ranks <= LaunchOptions::kMaxRanks, ErrorKind::Usage, "bench", "--nproc is ", ranks, "; allowed: 1 to ",
          LaunchOptions::kMaxRanks);
  const int most = *std::max_element(nproc.begin(), nproc.end());
  auto config = given;
  config.trainer.devices = "auto";
  // The same number for each world, so that only the number of ranks differs.
  if (config.trainer.threads == 0) config.trainer.threads = std::max<int64_t>(1, cpu_count() / most);
  const npu_train::detail::ScratchFolder scratch("bench");
  const auto file = scratch.path / "config.yaml";
  write_file_atomic(file, to_yaml(resolved(config, parts)));

  std::vector<BenchReport> worlds;
  for (const int ranks : nproc) {
    const auto report = scratch.path / ("world" + std::to_string(ranks) + ".json");
    const auto result = launch_ranks({.command = rank_command(file, report, options, ranks == most),
                                      .nproc = ranks,
                                      .grace = std::chrono::seconds(5),
                                      .kill_after = std::chrono::seconds(2)});
    if (result.exit_code == 0 && fs::exists(report)) {
      worlds.push_back(read_bench_report(report));
      continue;
    }
    worlds.push_back({.model = config.model.name, .device = config.device, .precision = config.precision});
    auto& world = worlds.back();
    world.exit_code = result.exit_code == 0 ? static_cast<int>(ErrorKind::Internal) : result.exit_code;
    world.rows.push_back({.section = "dist",
                          .name = std::to_string(ranks) + " ranks",
                          .failure = result.message.empty() ? "ended with exit code " + std::to_string(result.exit_code) : result.message});
    constexpr int kBySignal = 128;
    if (result.exit_code > kBySignal) break;  // stopped by the user
  }
  std::stable_partition(worlds.begin(), worlds.end(),
                        [](const BenchReport& w) { return w.exit_code == 0; });  // the first one describes all
  return joined_worlds(std::move(worlds));
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
