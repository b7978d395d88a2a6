// The folder of a run: which one it is, who may write into it, and which checkpoint in it a run resumes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/io/folder_lock.hpp"

namespace npu_train {

class RunFolder {
 public:
  // `config` must outlive this object.
  explicit RunFolder(const RunConfig& config) : config_(config) {}

  // "" until the run has its folder.
  const std::string& path() const { return path_; }
  // Returns `output.name`, or a name that consists of the names of the model and the data.
  std::string run_name() const;
  // Whether the configured run writes files at all.
  bool is_written() const { return !config_.output.dir.empty() && !config_.trainer.fast_dev_run; }

  // Locks a run's folder against other runs, and removes incomplete files that killed runs have left. Error(Checkpoint) names the run that
  // holds the lock.
  void hold(const std::filesystem::path& dir);
  // Error(Checkpoint) if another process has taken the lock.
  void check_held() const { lock_->check_held(); }
  // Releases the folder to other objects.
  void release() { lock_.reset(); }

  // Locks the folder `existing`, or a new folder if `existing` is empty. Writes config.yaml and environment.json into the folder and
  // returns it. Only settle() changes path(); call it when the other files of the run exist, too.
  std::string open(const std::string& existing, const ConfigNode& resolved);
  void settle(const std::string& dir) { path_ = dir; }
  // Begins a new run, which has no folder yet.
  void reset();

  // Returns the checkpoint that `which` (a path, or a value of --resume) selects, or ""; sets `dir` to the locked folder of the run to
  // continue, or "" for a new run.
  std::string find_resumed(const std::string& which, std::string& dir);

 private:
  const RunConfig& config_;
  std::unique_ptr<FolderLock> lock_;  // lock of path(), or of the folder that will become path()
  std::string path_;
};

}  // namespace npu_train
