/// The checkpoints of one run: which are kept, which is last, which is best, which one to resume from.
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
  /// Waits for a save that is under way; its error goes to the log.
  ~CheckpointStore();

  /// What must hold before a complete checkpoint appears in the folder, or throws: that the folder still belongs to this run. Called in the
  /// thread that writes.
  void set_before_commit(std::function<void()> check) { before_commit_ = std::move(check); }

  /// Writes a checkpoint, moves the links, and removes those that are no longer among the top k. Returns its path. A save under way ends
  /// before.
  std::string save(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config);

  /// The same in a thread of its own: returns as soon as `state` is copied to host memory (page-locked for a GPU), which stays for the next
  /// one. One save at a time: Error(Usage) without finish() between two. On disk it is as atomic as save().
  void save_later(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config);
  /// The path of what save_later() wrote, once; "" where nothing is under way or, without `wait`, not done. Throws what the save threw.
  std::string finish(bool wait = true);
  /// Waits for a save that is under way; its path, or what it threw, stays for finish().
  void wait() const;

  /// Writes to `diverged/` next to the folder of checkpoints; `last` and `best` stay unchanged.
  std::string save_diverged(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config);

  /// The two ends of a checkpoint that several ranks write: a folder for it, and, when all is in it, what save() does after writing.
  std::unique_ptr<CheckpointFolder> open(const CheckpointMeta& meta) const;
  std::string commit(CheckpointFolder& folder, const CheckpointMeta& meta) const;

  /// The same for `diverged/`.
  std::unique_ptr<CheckpointFolder> open_diverged() const;
  std::string commit_diverged(CheckpointFolder& folder, const CheckpointMeta& meta) const;

  /// Target of `last` or `best`; "" when there is none.
  std::string last() const { return link("last"); }
  std::string best() const { return link("best"); }

  /// The checkpoint that was saved last and whose files all verify; damaged ones are named in the log and passed over. "" when there is
  /// none.
  std::string newest_valid() const;

  /// By the names of --resume: auto (newest_valid()), last or best; "" when there is none.
  std::string resolve(const std::string& which) const;

  /// Removes what processes left here that were killed while they saved. To be called under the lock of the run's folder, before anything
  /// is saved. Gives the number.
  int remove_leftovers() const;

  const std::string& dir() const { return dir_; }

 private:
  struct Entry;
  std::vector<Entry> entries() const;  // the one saved last comes first
  std::string link(const std::string& name) const;
  void rotate(const std::string& newest) const;

  std::string path_of(const CheckpointMeta& meta) const;
  std::string diverged_path() const;
  std::string write(const RunState& state, const CheckpointMeta& meta, const ConfigNode& config) const;

  std::string dir_;
  CheckpointOptions options_;
  std::function<void()> before_commit_;
  RunState copy_;  // of the state that is being written
  std::future<std::string> under_way_;
};

/// A checkpoint, and why it is the one that a path means: "the last of this run; the best by val/acc1 is epoch=002-step=20".
struct FoundCheckpoint {
  std::string path;
  std::string why;
};

/// The checkpoint that `path` means: itself, or of a `checkpoints/` folder or a run folder the last one, without it the best one.
/// Error(Checkpoint) when there is none.
FoundCheckpoint choose_checkpoint(const std::string& path);

/// Puts the folder that `path` means (a checkpoint, a `checkpoints/` folder, or a run folder) into one form: the checkpoint itself.
/// Error(Checkpoint) when there is none.
std::string find_checkpoint(const std::string& path);

}  // namespace npu_train
