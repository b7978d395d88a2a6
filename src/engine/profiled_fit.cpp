#include "profiled_fit.hpp"

#include <filesystem>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/report/page_origin.hpp"

namespace npu_train {

namespace fs = std::filesystem;

ProfiledFit::ProfiledFit(const RunConfig& config, Run& run) : run_(run) {
  if (config.trainer.profiler == "none") return;
  const bool traced = config.trainer.profiler == "chrome";
  check(!traced || !config.dump.enabled, ErrorKind::Usage, "trainer.profiler",
        "'chrome' and the section dump both watch every operator, and one run has one such watch; hint: take trainer.profiler=simple");
  profiler_.emplace(run.device, run.task->parameters(), ProfilerOptions{.traced_windows = traced ? 3 : 0});
  run_.loop->observers().add(&*profiler_);
  if (const auto command = profiler_command(run.device); !command.empty())
    log_info("profiler: the device's own timeline, with these phases marked: ", command);
}

ProfiledFit::~ProfiledFit() {
  if (profiler_) run_.loop->observers().remove(&*profiler_);
}

void ProfiledFit::report(const std::string& run_dir) const {
  if (!profiler_) return;
  const auto profile = profiler_->profile();
  std::istringstream lines(to_text(profile));
  for (std::string line; std::getline(lines, line);) log_info("profiler: ", line);
  if (run_dir.empty()) return;
  const auto dir = fs::path(run_dir) / "profile";
  fs::create_directories(dir);
  save_json(dir / "profile.json", to_json(profile));
  write_page(dir / "profile.html", to_html(profile));
  if (!profile.events.empty()) {
    std::ostringstream trace;
    write_chrome_trace(profile, trace);
    write_file_atomic((dir / "trace.json").string(), trace.str());
  }
  log_info("profiler: files in ", dir.string(), profile.events.empty() ? "" : "; trace.json opens in https://ui.perfetto.dev");
}

RunResult ProfiledFit::fit(const std::string& run_dir) const {
  RunResult result;
  try {
    result = run_.loop->fit();
  } catch (...) {
    try {
      report(run_dir);
    } catch (const std::exception& e) {
      log_warning("the profile cannot be written: ", e.what());
    }
    throw;
  }
  report(run_dir);
  result.run_dir = run_dir;
  return result;
}

}  // namespace npu_train
