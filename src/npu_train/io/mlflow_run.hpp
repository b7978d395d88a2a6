/// Writes runs into an MLflow file store (mlruns/<experiment_id>/<run_id>/), in the format of MLflow's FileStore, so that MLflow's client,
/// its web page and `mlflow migrate-filestore` can read them. The format is defined in mlflow/store/tracking/file_store.py, the limits of
/// names and values in mlflow/utils/validation.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace npu_train {

/// The values of MLflow's RunStatus in files.
enum class MlflowStatus { Running = 1, Finished = 3, Failed = 4, Killed = 5 };

/// Converts the name of a parameter, metric or tag to one that MLflow accepts. ASCII letters and digits, '_', '-', '.', ' ' and '/' stay.
/// Other characters become '_', and so do parts of a path that are empty, are "." or begin with "..". A name that changes ends with eight
/// digits of its hash, so that two names never become equal. The result has at most 250 characters.
std::string mlflow_name(std::string_view name);

/// The names of a run's folders.
struct MlflowRunId {
  std::string experiment, run;
};

/// A run. Readers never see its files incomplete. Several processes may write to one store, and to different runs of one experiment. After
/// a crash of the machine the last values may be missing. Failures of the disk are Error(Checkpoint).
class MlflowRun {
 public:
  /// Creates a run `name` in the experiment `experiment`. The store and the experiment are created if they are missing. The number of a new
  /// experiment follows from its name, so that two processes that create the experiment at the same time create the same one.
  /// Error(Checkpoint) if the experiment is deleted (in .trash).
  static MlflowRun create(const std::filesystem::path& store, const std::string& experiment, const std::string& name);

  /// Returns an existing run without changing it. nullopt if the store has no such run, or if the run is deleted.
  static std::optional<MlflowRun> reopen(const std::filesystem::path& store, const MlflowRunId& id);

  const MlflowRunId& id() const { return id_; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Writes a parameter, unless the run already has it, because parameters are constant. A text of more than 6,000 bytes is cut at the end
  /// of a character, and the function returns false. Bytes that are not UTF-8 and control characters are escaped, here and in tags.
  bool set_param(std::string_view name, std::string_view value);
  /// Writes or replaces a tag; a text of more than 5,000 bytes is cut.
  void set_tag(std::string_view name, std::string_view value);
  /// Returns a tag; "" if the run has none of this name.
  std::string tag(std::string_view name) const;
  /// Writes or replaces a file of the run. Returns false, and writes nothing, if the artifacts of its experiment are elsewhere (in an
  /// object store).
  bool put_artifact(const std::string& file, std::string_view content);

  /// From now on, the first value that is logged of a metric removes the earlier values of that metric at `step` and later, because a
  /// resumed run logs them again. Metrics that are not logged again stay unchanged, because other programs may have added them.
  void replace_from(int64_t step) { replace_from_ = step; }
  /// Appends a value with the current time. NaN and infinities are written as MLflow writes them: nan, inf, -inf.
  void log_metric(std::string_view name, double value, int64_t step);

  /// Sets the status. Also sets the end time, which is null for the status Running.
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
