/// Writes runs into a file store of MLflow (mlruns/<experiment_id>/<run_id>/), in the format of MLflow's FileStore, so that its client, its
/// page and `mlflow migrate-filestore` read them. Format: mlflow/store/tracking/file_store.py; limits of names and values:
/// mlflow/utils/validation.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace npu_train {

/// The numbers that MLflow's RunStatus has in files.
enum class MlflowStatus { Running = 1, Finished = 3, Failed = 4, Killed = 5 };

/// Returns a name of a parameter, metric or tag that MLflow accepts. Letters and digits of ASCII, '_', '-', '.', ' ' and '/' stay; other
/// characters, and parts of a path that are empty, "." or begin with "..", become '_', and a name that changes ends with eight digits of
/// its hash, so that two names never become one. The result has at most 250 characters.
std::string mlflow_name(std::string_view name);

/// The names of a run's folders.
struct MlflowRunId {
  std::string experiment, run;
};

/// A run, with files that a reader never sees incomplete. Several processes may write to one store, and to different runs of one
/// experiment. After a crash of the machine the last values may be missing. Failures of the disk are Error(Checkpoint).
class MlflowRun {
 public:
  /// Creates a run in the experiment of that name. The store and the experiment are created if they are missing; the number of a new
  /// experiment follows from its name, so that two processes that create it at the same time create the same one. Error(Checkpoint) if the
  /// experiment is deleted (in .trash).
  static MlflowRun create(const std::filesystem::path& store, const std::string& experiment, const std::string& name);

  /// Returns a run that exists, unchanged. nullopt if the store has no such run, or if it is deleted.
  static std::optional<MlflowRun> reopen(const std::filesystem::path& store, const MlflowRunId& id);

  const MlflowRunId& id() const { return id_; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Writes a parameter, unless the run has it: parameters are constant. A text of more than 6,000 bytes is cut at the end of a character;
  /// returns false for such a text. In texts, bytes that are not UTF-8 and control characters are escaped.
  bool set_param(std::string_view name, std::string_view value);
  /// Writes or replaces a tag, of at most 5,000 bytes.
  void set_tag(std::string_view name, std::string_view value);
  /// Returns a tag; "" if the run has none of this name.
  std::string tag(std::string_view name) const;
  /// Writes or replaces a file of the run. Returns false, and writes nothing, if the artifacts of its experiment are elsewhere (in an
  /// object store).
  bool put_artifact(const std::string& file, std::string_view content);

  /// From now on, the first value of each metric removes earlier ones of `step` and later: a resumed run logs them again. Metrics that are
  /// not logged again stay as they are, since other programs may have added them.
  void replace_from(int64_t step) { replace_from_ = step; }
  /// Appends a value with the current time. NaN and infinities are written as MLflow writes them: nan, inf, -inf.
  void log_metric(std::string_view name, double value, int64_t step);

  /// Sets the status, and the time of the end unless it is Running.
  void set_status(MlflowStatus status);

 private:
  MlflowRun(std::filesystem::path folder, MlflowRunId id, bool artifacts_are_here)
      : folder_(std::move(folder)), id_(std::move(id)), artifacts_are_here_(artifacts_are_here) {}

  std::filesystem::path folder_;
  MlflowRunId id_;
  bool artifacts_are_here_;
  std::optional<int64_t> replace_from_;
  std::set<std::string> logged_;  // metrics that this object has logged
};

}  // namespace npu_train
