#include "doctor_dist.hpp"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/tools/doctor/dist_environment.hpp"
#include "npu_train/tools/launch/launcher.hpp"
#include "npu_train/tools/probe/dist_probe.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "tools/commands/train_app/cli.hpp"
#include "tools/commands/train_app/launch_options.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDoctor = "doctor --dist";
constexpr const char* kDone = "done";
constexpr const char* kError = "error: ";

fs::path place_of(const fs::path& folder, int rank) { return folder / ("rank" + std::to_string(rank)); }

/// Records which part of the test a rank has reached. Only the last line of the file counts.
void report_place(const std::string& folder, int rank, const std::string& place) {
  if (!folder.empty()) std::ofstream(place_of(folder, rank), std::ios::app) << npu_train::detail::visible_text(place) << std::endl;
}

std::string last_place(const fs::path& folder, int rank) {
  std::ifstream in(place_of(folder, rank));
  std::string line, last = "its start";
  while (std::getline(in, line)) last = line;
  return last;
}

/// Describes why a world of `ranks` ranks failed.
std::string cause_of(const LaunchResult& result, const fs::path& folder, int ranks, double timeout) {
  std::vector<std::string> silent;
  std::string reported;
  for (int r = 0; r < ranks; ++r) {
    const auto place = last_place(folder, r);
    if (place.starts_with(kError) && reported.empty()) reported = place.substr(std::string_view(kError).size());
    if (!place.starts_with(kError) && place != kDone)
      silent.push_back("rank " + std::to_string(r) + " of " + std::to_string(ranks) + " (at: " + place + ")");
  }
  if (result.hung && !silent.empty())
    return join(silent) + " did not answer within " + human_duration(timeout) + (reported.empty() ? "" : "; " + without_hint(reported));
  return result.message + (silent.empty() ? "" : "; ranks that reported nothing: " + join(silent)) +
         (reported.empty() ? "" : "; " + without_hint(reported));
}

DistProbe probe_world(const DistArguments& args, const fs::path& folder, int ranks, int& stopped) {
  fs::create_directory(folder);
  LaunchOptions options{.command = {fs::read_symlink("/proc/self/exe").string(), "doctor", "--dist", "--timeout", shortest(args.timeout),
                                    "--report-folder", folder.string()},
                        .nproc = ranks,
                        .grace = std::chrono::seconds(5),
                        .kill_after = std::chrono::seconds(2)};
  const auto result = launch_ranks(options);
  constexpr int kBySignal = 128;
  if (result.exit_code > kBySignal) stopped = result.exit_code;
  const auto report = folder / "result.json";
  std::error_code error;
  if (result.exit_code == 0 && fs::exists(report, error)) return dist_probe_from(load_json(report), report.string());
  return {.ranks = ranks, .failure = cause_of(result, folder, ranks, args.timeout)};
}

int print_report(const DistArguments& args, const std::vector<DistProbe>& worlds) {
  std::vector<int> ranks;
  for (const auto& world : worlds) ranks.push_back(world.ranks);
  DoctorReport report{check_dist_environment(HostView::live(), network_facts(), ranks)};
  report.add(judge_collectives(worlds));
  auto shown = report_of(report);
  add_collectives(shown, worlds);
  if (!args.html.empty()) write_page(args.html, shown.html());
  print(args.json, shown.json(), shown.text(terminal_columns() >= 60 ? terminal_columns() : 80));
  return report.worst() == Verdict::Fail ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

int start_worlds(const DistArguments& args) {
  const npu_train::detail::ScratchFolder reports(kDoctor);
  std::vector<DistProbe> worlds;
  int stopped = 0;
  for (const int ranks : args.nproc) {
    worlds.push_back(probe_world(args, reports.path / ("world" + std::to_string(ranks)), ranks, stopped));
    if (stopped != 0) return stopped;
  }
  return print_report(args, worlds);
}

/// Runs the test as a rank. The rank was started by this command, which reads the report folder, or by the user's launcher.
int be_rank(const DistArguments& args, const Launch& launch) {
  const bool quiet = !args.folder.empty();  // the launcher reports the result
  std::unique_ptr<ScopedLogSink> silence;
  if (quiet) silence = std::make_unique<ScopedLogSink>(LogSink());
  at::set_num_threads(1);  // ranks share the processors
  try {
    report_place(args.folder, launch.rank, "waiting for the other ranks");
    const auto group = ProcessGroup::from_environment({.timeout = args.timeout});
    const auto probe = probe_collectives(*group, [&](const std::string& part) { report_place(args.folder, launch.rank, part); });
    if (launch.rank == 0 && quiet) save_json(args.folder + "/result.json", to_json(probe));
    report_place(args.folder, launch.rank, kDone);
    if (quiet) return 0;
    if (launch.rank != 0) return probe.ok() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
    return print_report(args, {probe});
  } catch (const Error& e) {
    report_place(args.folder, launch.rank, kError + std::string(e.what()));
    if (quiet) ::_exit(e.exit_code());
    throw;
  }
}

void check_arguments(const DistArguments& args) {
  check(std::isfinite(args.timeout) && args.timeout >= 1 && args.timeout <= 3600, ErrorKind::Usage, kDoctor, "--timeout is ", args.timeout,
        "; allowed: 1 to 3600 seconds");
  for (const int ranks : args.nproc)
    check(ranks >= 1 && ranks <= LaunchOptions::kMaxRanks, ErrorKind::Usage, kDoctor, "--nproc is ", ranks, "; allowed: 1 to ",
          LaunchOptions::kMaxRanks);
  for (size_t i = 0; i < args.nproc.size(); ++i)
    check(std::find(args.nproc.begin(), args.nproc.begin() + static_cast<std::ptrdiff_t>(i), args.nproc[i]) ==
              args.nproc.begin() + static_cast<std::ptrdiff_t>(i),
          ErrorKind::Usage, kDoctor, "--nproc contains ", args.nproc[i], " twice");
}

}  // namespace

int doctor_dist(const DistArguments& args) {
  check_arguments(args);
  check_writable({args.html});
  const auto launch = launch_of_environment();
  if (launch.world_size == 1 && args.folder.empty()) return start_worlds(args);
  check(!args.nproc_given, ErrorKind::Usage, kDoctor, "this process is already rank ", launch.rank, " of ", launch.world_size,
        ", started by ", launch.launcher, "; hint: omit --nproc");
  int code = 0;
  end_with_peer([&] { code = be_rank(args, launch); });
  return code;
}

}  // namespace npu_train::cli
