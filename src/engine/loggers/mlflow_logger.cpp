#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/loggers/loggers.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/engine/logger.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/mlflow_run.hpp"

namespace npu_train::detail {

const ConfigTable<MlflowOptions>& MlflowOptions::config_table() {
  using T = MlflowOptions;
  static const auto table =
      ConfigTable<T>("logger mlflow")
          .field("dir", &T::dir, "folder of the store, which MLflow calls mlruns")
          .field("experiment", &T::experiment, "experiment of the run; '': the name of the run's kind, as output.name")
          .field("run_name", &T::run_name, "name of the run; '': that of its folder, as version_0");
  return table;
}

namespace {

namespace fs = std::filesystem;

// File in the run's folder that names the run's store, experiment and id in MLflow, so that a resumed run continues there.
constexpr const char* kNote = "mlflow.json";
// Tag whose value is the run's folder.
constexpr const char* kFolderTag = "npu_train.run_dir";

class MlflowLogger final : public Logger {
 public:
  explicit MlflowLogger(MlflowOptions options) : options_(std::move(options)) {}

  std::string what() const override { return "the run of MLflow"; }

  void begin(const LoggedRun& run) override {
    const auto note = fs::path(run.dir) / kNote;
    if (run.from) go_on(note);
    const bool again = run_.has_value();
    if (!again)
      run_ = MlflowRun::create(options_.dir, options_.experiment.empty() ? run.name : options_.experiment,
                               options_.run_name.empty() ? fs::path(run.dir).filename().string() : options_.run_name);
    try {
      if (again) {
        run_->set_status(MlflowStatus::Running);
        run_->replace_from(*run.from);
      } else {
        save_json(note, Json::object({{"store", fs::absolute(options_.dir).lexically_normal().string()},
                                      {"experiment_id", run_->id().experiment},
                                      {"run_id", run_->id().run}}));
      }
      describe(run);
    } catch (const Error&) {  // no further call follows, so the run would keep the status RUNNING permanently
      try {
        run_->set_status(MlflowStatus::Failed);
      } catch (const Error&) {  // the first error is reported
      }
      throw;
    }
    for (const auto& row : run.kept) try {
        log(row);
      } catch (const Error& e) {
        log_warning("[mlflow] ", e.what());
      }
  }

  // Writes all other values if one cannot be written, such as `acc/top5` next to `acc` (a file cannot be a folder, too).
  void log(const LoggedRow& row) override {
    std::exception_ptr failed;
    const auto attempt = [&](auto&& write) {
      try {
        write();
      } catch (const Error&) {
        failed = std::current_exception();
      }
    };
    if (std::exchange(ended_, false)) attempt([&] { run_->set_status(MlflowStatus::Running); });
    for (const auto& value : row.values) attempt([&] { run_->log_metric(row.full_name(value.first), value.second, row.step); });
    if (failed) std::rethrow_exception(failed);
  }

  bool log_text(const std::string& name, const std::string& text, int64_t step) override { return put("texts", name, step, ".md", text); }
  bool log_image(const std::string& name, const LoggedImage& image, int64_t step) override {
    return put("images", name, step, ".png", image.png);
  }

  void end(LoggedEnd how) override {
    ended_ = true;
    run_->set_status(how == LoggedEnd::Finished  ? MlflowStatus::Finished
                     : how == LoggedEnd::Stopped ? MlflowStatus::Killed
                                                 : MlflowStatus::Failed);
  }

 private:
  // Writes an artifact such as images/digits/step_000042.png.
  bool put(const char* kind, const std::string& name, int64_t step, const char* end, std::string_view content) {
    return run_->put_artifact(str_cat(kind, "/", mlflow_name(name), "/", printed("step_%06lld", static_cast<long long>(step)), end),
                              content);
  }

  // Continues the run that `note` names, if the store has it. Otherwise `run_` stays empty, and begin() creates a new run; also if `note`
  // is a copy of the file of another folder that still has it, because that folder may continue the run, too.
  void go_on(const fs::path& note) {
    if (!fs::exists(note)) return;
    const auto where = note.string();
    try {
      const auto document = load_json(note);
      const MlflowRunId id{document.at("experiment_id", where).text(where), document.at("run_id", where).text(where)};
      run_ = MlflowRun::reopen(options_.dir, id);
      if (!run_) {
        log_warning("[mlflow] ", fs::absolute(options_.dir).string(), " has no run ", id.run, " of experiment ", id.experiment,
                    ", which this run began; a new one begins with the values from here on");
        return;
      }
      const auto owner = run_->tag(kFolderTag);
      std::error_code error;
      if (owner.empty() || !fs::exists(fs::path(owner) / kNote, error) || fs::equivalent(fs::path(owner) / kNote, note, error)) return;
      run_.reset();
      log_warning("[mlflow] run ", id.run, " belongs to ", owner, ", of which ", note.parent_path().string(),
                  " is a copy; a new run begins with the values from here on");
    } catch (const Error& e) {
      log_warning("[mlflow] ", e.what(), "; a new run of MLflow begins with the values from here on");
    }
  }

  // Writes the parameters, the tags and config.yaml of the run. Parameters are constant in MLflow, so those of a resumed run stay.
  void describe(const LoggedRun& run) {
    std::vector<std::string> cut;
    for (const auto& [name, value] : flat_settings(run.config))
      if (!run_->set_param(name, value.is_scalar() ? value.scalar() : to_yaml_line(value))) cut.push_back(name);
    if (!cut.empty())
      log_warning("[mlflow] parameters of more than 6,000 bytes were cut: ", join(cut), "; config.yaml of its artifacts is complete");
    run_->set_tag("mlflow.source.name", command_line());
    run_->set_tag(kFolderTag, fs::absolute(run.dir).lexically_normal().string());
    run_->set_tag("npu_train.version", NPU_TRAIN_VERSION);
    if (!run_->put_artifact("config.yaml", to_yaml(run.config)))
      log_warning("[mlflow] the artifacts of experiment ", run_->id().experiment,
                  " are not in its folder, so config.yaml, texts and images ", "are not written there");
  }

  MlflowOptions options_;
  std::optional<MlflowRun> run_;
  bool ended_ = false;
};

}  // namespace

std::shared_ptr<Logger> mlflow_logger(const MlflowOptions& options) {
  check(!options.dir.empty(), ErrorKind::Usage, "logger mlflow", "dir is empty; allowed: a folder; hint: omit it for mlruns");
  check(options.dir.find("://") == std::string::npos, ErrorKind::Usage, "logger mlflow", "dir is '", options.dir,
        "', an address; allowed: a folder; hint: a server of MLflow shows a folder with --backend-store-uri");
  return std::make_shared<MlflowLogger>(options);
}

}  // namespace npu_train::detail
