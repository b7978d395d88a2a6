/// The checkpoints of one run: which are kept, which is the last, which the best, and from which to resume.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/options.hpp"

namespace npu_train {

/// A folder `checkpoints/` with one folder per checkpoint (`epoch=003-step=1172`) and the links `last` and `best`.
class CheckpointStore {
 public:
  CheckpointStore(std::string dir, CheckpointOptions options);
  /// Waits for a save in progress, and logs its error.
  ~CheckpointStore();

  /// Sets a check that the writing thread calls before a complete checkpoint appears in the folder. The check throws if the folder no
  /// longer belongs to this run.
  void set_before_commit(std::function<void()> check) { before_commit_ = std::move(check); }

  /// From now on, also keeps the newest `count` checkpoints.
  void keep_newest(int64_t count) { newest_kept_ = count; }

  /// Waits for a save in progress, writes a checkpoint, updates the links, and removes checkpoints that are not among the top k. Returns
  /// the path of the checkpoint.
  std::string save(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config);

  /// Saves in a separate thread; the save is as atomic on disk as save(). Returns as soon as `state` is copied to host memory (page-locked
  /// for a GPU); the next call reuses this memory. Error(Usage) if finish() has not ended the previous save.
  void save_later(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config);
  /// Returns the path of the checkpoint that save_later() has written; each path is returned once. Returns "" if there was no save, or if
  /// the save is not done and `wait` is false. Rethrows the error of the save.
  std::string finish(bool wait = true);
  /// Waits for a save in progress. Its path or error remains for finish().
  void wait() const;

  /// Writes to `diverged/` next to the folder of checkpoints; `last` and `best` are unchanged.
  std::string save_diverged(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config);

  /// The two halves of save(), for a checkpoint that several ranks write: open() creates its folder, and commit() does the rest.
  std::unique_ptr<CheckpointFolder> open(const CheckpointMeta& meta) const;
  std::string commit(CheckpointFolder& folder, const CheckpointMeta& meta) const;

  /// The two halves of save_diverged().
  std::unique_ptr<CheckpointFolder> open_diverged() const;
  std::string commit_diverged(CheckpointFolder& folder, const CheckpointMeta& meta) const;

  /// Returns the target of `last` or `best`; "" if there is none.
  std::string last() const { return link("last"); }
  std::string best() const { return link("best"); }

  /// Returns the checkpoints that were saved last, at most `count`, the newest first.
  std::vector<std::string> newest(int64_t count) const;

  /// Returns the newest checkpoint whose files all verify; "" if there is none. Damaged ones are logged and skipped.
  std::string newest_valid() const;

  /// Returns the checkpoint for a value of --resume: "auto" (newest_valid()), "last" or "best"; "" if there is none.
  std::string resolve(const std::string& which) const;

  /// Removes the unfinished files of processes that were killed during a save, and returns their number. Call it under the lock of the
  /// run's folder, before anything is saved.
  int remove_leftovers() const;

  const std::string& dir() const { return dir_; }

 private:
  struct Entry;
  std::vector<Entry> entries() const;  // newest first
  std::string link(const std::string& name) const;
  void rotate(const std::string& newest) const;

  std::string path_of(const CheckpointMeta& meta) const;
  std::string diverged_path() const;
  std::string write(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) const;

  std::string dir_;
  CheckpointOptions options_;
  int64_t newest_kept_ = 0;
  std::function<void()> before_commit_;
  RunState copy_;  // copy of the state that is being written
  std::future<std::string> under_way_;
};

/// A checkpoint, and why a path selects it: "the last of this run; the best by val/acc1 is epoch=002-step=20".
struct FoundCheckpoint {
  std::string path;
  std::string why;
};

/// Returns the checkpoint that `path` selects: `path` itself if it is one; for a `checkpoints/` folder or a run folder, its last
/// checkpoint, or the best one if there is no last one. Error(Checkpoint) if there is none.
FoundCheckpoint choose_checkpoint(const std::string& path);

/// Returns only the path of choose_checkpoint(path), with the same errors.
std::string find_checkpoint(const std::string& path);

}  // namespace npu_train
