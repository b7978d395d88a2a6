#include "npu_train/tools/analyze/profiled_fit.hpp"

#include <filesystem>
#include <optional>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

class ProfiledFit final : public RunObserver {
 public:
  void on_fit_start(const RunView& run) override {
    const auto& chosen = run.config.trainer.profiler;
    if (chosen == "none") return;
    const bool traced = chosen == "chrome";
    check(!traced || run.config.sections.count("dump") == 0, ErrorKind::Usage, "trainer.profiler",
          "'chrome' and the section dump both record every operator, and only one of them can be active in a run; hint: use "
          "trainer.profiler=simple");
    profiler_.emplace(run.device, *run.loop->parts().parameters, ProfilerOptions{.traced_windows = traced ? 3 : 0});
    run.loop->observers().add(&*profiler_);
    if (const auto command = profiler_command(run.device); !command.empty())
      log_info("profiler: command for the device's own timeline, with these phases marked: ", command);
  }

  void on_fit_end(const RunView& run, const std::string& run_dir, bool /*failed*/) override {
    if (!profiler_) return;
    run.loop->observers().remove(&*profiler_);
    const auto profile = profiler_->profile();
    profiler_.reset();
    report(profile, run_dir);
  }

 private:
  static void report(const Profile& profile, const std::string& run_dir) {
    const auto made = report_of(profile);
    std::istringstream lines(made.text());
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) log_info("profiler: ", line);
    if (run_dir.empty()) return;
    const auto dir = fs::path(run_dir) / "profile";
    fs::create_directories(dir);
    save_json(dir / "profile.json", made.json());
    write_page(dir / "profile.html", made.html());
    if (!profile.events.empty()) {
      std::ostringstream trace;
      write_chrome_trace(profile, trace);
      write_file_atomic((dir / "trace.json").string(), trace.str());
    }
    log_info("profiler: files in ", dir.string(), profile.events.empty() ? "" : "; open trace.json in https://ui.perfetto.dev");
  }

  std::optional<Profiler> profiler_;
};

}  // namespace

void add_profiler(Parts& parts) {
  parts.observers.add("profiler", "the profiler of trainer.profiler", [] { return std::make_unique<ProfiledFit>(); });
}

}  // namespace npu_train
