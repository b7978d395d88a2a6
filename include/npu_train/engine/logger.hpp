/// The destinations of a run's values: one object for each name in output.logger, on the main rank.
///
///   struct Printed final : npu_train::Logger {
///     std::string what() const override { return "stdout"; }
///     void begin(const npu_train::LoggedRun& run) override { std::printf("run %s\n", run.name.c_str()); }
///     void log(const npu_train::LoggedRow& row) override {
///       for (const auto& [name, value] : row.values) std::printf("%s %g\n", row.full_name(name).c_str(), value);
///     }
///   };
///   parts.loggers.add<npu_train::NoOptions>("printed", "values on stdout", [](const auto&) { return std::make_shared<Printed>(); });
///   // output: {logger: [csv, printed]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

/// Values of one step.
struct LoggedRow {
  std::string phase;  ///< train (one step), val, epoch (averages of an epoch), or log (values of Trainer::log)
  int64_t epoch = 0;
  int64_t step = 0;  ///< steps taken
  Scalars values{};
  /// Returns the name of a value with its phase as prefix: train/loss, val/loss. A name of Trainer::log is unchanged.
  std::string full_name(const std::string& name) const { return phase == "log" ? name : phase + "/" + name; }
};

/// An image as the content of a PNG file.
struct LoggedImage {
  std::string png{};
  int64_t height = 0, width = 0, channels = 0;
};

/// The distribution of values: counts[i] is the number of values that are at least limits[i - 1] and below limits[i]; counts[0] has no
/// lower limit.
struct LoggedHistogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits{}, counts{};
  int64_t not_finite = 0;  ///< number of values that are NaN or infinite, which the other fields exclude
};

/// The run that is logged.
struct LoggedRun {
  std::string dir;                     ///< folder of the run
  std::string name{};                  ///< output.name, or the names of model and data
  ConfigNode config{};                 ///< the resolved configuration
  std::vector<std::string> columns{};  ///< names of values that will be logged, after epoch, step and phase
  /// Set for a resumed run: the first step whose values are logged again. The values that an earlier part of the run logged from this step
  /// on are obsolete, except `kept`.
  std::optional<int64_t> from{};
  std::optional<int64_t> items_from{};  ///< the same for texts, images and histograms
  std::vector<LoggedRow> kept{};        ///< rows of step `from` that precede the position of the resume; they are not logged again
  std::string earlier_csv{};            ///< all rows of metrics.csv that precede the position of the resume, with `columns`
};

/// How a run, or a part of it, ended.
enum class LoggedEnd {
  Finished,
  Stopped,  ///< on request: a signal, or request_stop()
  Failed,   ///< by an error
};

/// A destination. Calls come from the thread that runs fit(). An exception causes one warning and does not end the run; if begin() throws,
/// the destination is not used further.
class Logger {
 public:
  virtual ~Logger() = default;
  /// Returns the name of the destination in messages: "metrics.csv".
  virtual std::string what() const = 0;
  /// Called once, before any other call.
  virtual void begin(const LoggedRun& run) = 0;
  virtual void log(const LoggedRow& row) = 0;
  /// Log the values of TrainLoop::log_text(), log_image() and log_histogram(). Return false if the destination does not store values of
  /// this kind.
  virtual bool log_text(const std::string& /*name*/, const std::string& /*text*/, int64_t /*step*/) { return false; }
  virtual bool log_image(const std::string& /*name*/, const LoggedImage& /*image*/, int64_t /*step*/) { return false; }
  virtual bool log_histogram(const std::string& /*name*/, const LoggedHistogram& /*histogram*/, int64_t /*step*/) { return false; }
  /// Called at the end of fit(), and when the trainer is destroyed if values were logged after that. Another fit() may log values and end
  /// again. The last call counts, because an error may follow a successful end.
  virtual void end(LoggedEnd /*how*/) {}
};

}  // namespace npu_train
