#include "run_folder.hpp"

#include <string_view>
#include <system_error>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/engine/run_files.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/checkpoint_store.hpp"

namespace npu_train {

namespace fs = std::filesystem;

std::string RunFolder::run_name() const {
  if (!config_.output.name.empty()) return config_.output.name;
  if (config_.model.name.empty()) return "run";
  return config_.model.name + (config_.data.name.empty() ? "" : "_" + config_.data.name);
}

void RunFolder::hold(const fs::path& dir) {
  if (lock_ && lock_->folder() == dir) return;
  lock_ = std::make_unique<FolderLock>(dir);
  const auto written_by_runs = [](std::string_view name) {
    return name == "config.yaml" || name == "environment.json" || name == "metrics.csv" || name == "history.json" ||
           name == "mlflow.json" || name == "diverged";
  };
  const int removed =
      CheckpointStore((dir / "checkpoints").string(), config_.checkpoint).remove_leftovers() + remove_leftovers(dir, written_by_runs);
  if (removed > 0)
    log_info("removed from ", dir.string(), " incomplete files of a killed run: ", removed, removed == 1 ? " item" : " items");
}

std::string RunFolder::open(const std::string& existing, const ConfigNode& resolved) {
  const auto dir = existing.empty() ? make_run_dir(config_.output.dir, run_name()) : existing;
  hold(dir);
  write_file_atomic((fs::path(dir) / "config.yaml").string(), to_yaml(resolved));
  write_environment(fs::path(dir) / "environment.json");
  return dir;
}

void RunFolder::reset() {
  path_.clear();
  release();
}

std::string RunFolder::find_resumed(const std::string& which, std::string& dir) {
  if (which != "auto" && which != "last" && which != "best") {
    // A run with this output name continues in its folder. Any other checkpoint is only read, and starts a new run.
    const auto checkpoint = find_checkpoint(which);
    const auto parent = fs::path(checkpoint).parent_path();
    std::error_code error;
    const bool own = fs::equivalent(parent.parent_path().parent_path(), fs::path(config_.output.dir) / run_name(), error);
    if (parent.filename() == "checkpoints" && own) dir = parent.parent_path().string();
    if (!dir.empty() && path_.empty() && is_written()) hold(dir);
    return checkpoint;
  }
  check(which == "auto" || !config_.output.dir.empty() || !path_.empty(), ErrorKind::Checkpoint, "Trainer::resume",
        "output.dir is empty: there is no run to resume; hint: give a path");
  if (config_.output.dir.empty() && path_.empty()) return "";
  // a run that was killed before its first checkpoint must not hide an earlier run
  for (const auto& candidate : path_.empty() ? run_dirs(config_.output.dir, run_name()) : std::vector<std::string>{path_}) {
    if (is_written()) hold(candidate);
    dir = candidate;
    const auto checkpoint = CheckpointStore((fs::path(candidate) / "checkpoints").string(), config_.checkpoint).resolve(which);
    if (!checkpoint.empty()) return checkpoint;
    if (path_.empty()) release();
  }
  check(which == "auto", ErrorKind::Checkpoint, "Trainer::resume", "there is no checkpoint '", which, "' under ",
        (fs::path(config_.output.dir) / run_name()).string(),
        "; hint: --resume auto selects the newest complete one, --resume PATH any other");
  log_info("nothing to resume: a new run starts");
  return "";
}

}  // namespace npu_train
