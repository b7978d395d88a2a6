/// Reads every sample of a data set once, before a training: `npu_tool data check`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// A sample that could not be read.
struct BadSample {
  std::string split;  ///< train | val
  int64_t index = 0;
  std::string place;    ///< file of the sample, if the data set knows it
  std::string message;  ///< the reason
};

/// Numbers of samples of one class.
struct ClassCount {
  std::string name;
  int64_t train = 0, val = 0;
};

/// A sample whose content occurs more than once.
struct RepeatedSample {
  std::string split;  ///< train | val
  int64_t index = 0;
  std::string place;  ///< file of the sample, if the data set knows it
};

struct DataCheck {
  std::string summary;  ///< DatasetPair::summary()
  int64_t train = 0, val = 0;
  std::vector<ClassCount> classes;  ///< readable samples; empty if targets are not classes
  std::vector<BadSample> bad;       ///< in order of the samples
  /// Groups of samples whose content (decoded pixels, tokens) has the same 64-bit digest. Their classes may differ.
  std::vector<std::vector<RepeatedSample>> repeated;
  /// Whether there are samples, and all of them can be read.
  bool passed() const { return bad.empty() && train + val > 0; }
};

/// Opens the configuration's data set and reads every sample, on up to 16 cores; images are decoded, but not transformed. A stream is read
/// for one epoch, up to its first bad sample. Errors of the configuration, and of a data set that cannot be opened, are rethrown.
/// `progress` is called with the number of started samples and the number of all samples.
DataCheck check_data(const RunConfig& config, const Parts& parts = builtin_parts(),
                     const std::function<void(int64_t done, int64_t all)>& progress = {});

/// Returns a table of the samples with the reasons why they are bad, for reports.
ReportTable table_of_bad_samples(const std::vector<BadSample>& bad);

Report report_of(const DataCheck& check);

}  // namespace npu_train
