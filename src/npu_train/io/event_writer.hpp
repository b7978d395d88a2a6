/// Writes values, texts, images and histograms in the file format that TensorBoard reads (TFRecord frames around Event messages). The
/// fields are those of tensorboard/compat/proto/summary.proto and tensorboard/plugins/hparams/plugin_data.proto.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "npu_train/core/append_file.hpp"

namespace npu_train {

/// A setting of a run, for TensorBoard's page of hyperparameters.
using HyperParameter = std::variant<bool, double, std::string>;

/// One events.out.tfevents.* file. Records are complete or absent: a reader that follows the file never sees a partial frame as valid.
class EventWriter {
 public:
  /// Opens a new file in `dir` (created if missing), with a name that readers sort after all existing files. Error(Checkpoint) if that
  /// fails.
  explicit EventWriter(const std::string& dir);

  /// Marks a resumed run (SessionLog START): readers discard what earlier files contain from `step` on.
  void start_session(int64_t step);

  /// Adds one value per tag at `step`, and flushes. NaN and infinities are written unchanged. Error(Checkpoint) if the disk does not accept
  /// the record; the file then ends with the previous record, and a later one may succeed.
  void add_scalars(const std::vector<std::pair<std::string, double>>& tags, int64_t step);

  /// Adds a text, which TensorBoard shows as Markdown.
  void add_text(const std::string& tag, std::string_view text, int64_t step);
  /// Adds an image, as the content of a PNG file with 1 to 4 channels.
  void add_image(const std::string& tag, std::string_view png, int64_t height, int64_t width, int64_t channels, int64_t step);
  /// Adds a distribution. `totals`: minimum, maximum, count, sum, sum of squares. counts[i] counts values from limits[i - 1] to limits[i].
  void add_histogram(const std::string& tag, const std::array<double, 5>& totals, const std::vector<double>& limits,
                     const std::vector<double>& counts, int64_t step);
  /// Adds the settings of the run. If a folder has several records of settings, TensorBoard uses the first.
  void add_hyperparameters(const std::vector<std::pair<std::string, HyperParameter>>& settings);

  const std::string& path() const { return file_.path(); }

 private:
  void write_record(std::string_view event);

  AppendFile file_;
};

/// Returns CRC-32C (Castagnoli, RFC 3720), the checksum of TFRecord frames.
uint32_t crc32c(std::string_view data);

}  // namespace npu_train
