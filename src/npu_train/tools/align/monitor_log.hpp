/// The file monitor.csv of a run: its rows, and the bands of its gradient norms.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// The statistics of one tensor in one window. They cover all its elements; those of an activation cover all micro-batches of all ranks.
struct MonitorRow {
  int64_t attempt = 0;  ///< number of windows before this one, like the steps of a dump
  int64_t step = 0;     ///< number of steps taken, including this one, as in metrics.csv
  bool skipped = false;
  std::string what{};  ///< weights, activations, gradients or optimizer
  std::string name{};  ///< parameter ("fc.weight"), layer ("fc") or state ("exp_avg/fc.weight")
  int64_t numel = 0;
  double norm = 0, mean = 0, std = 0, min = 0, max = 0;  ///< norm: the L2 norm; all are NaN if an element is NaN
  double zeros = 0;                                      ///< fraction of the elements that are 0
  int64_t nans = 0, infs = 0;                            ///< numbers of elements

  bool is_finite() const { return nans == 0 && infs == 0; }
};

/// Return the header and a row of monitor.csv. The rows of a window are in the order of its computation: weights, activations in forward
/// order, gradients from the loss backwards, and the optimizer's state.
std::string monitor_header();
std::string to_csv(const MonitorRow& row);

/// Calls `on_row` for each row of a file. An incomplete last row, which is being written or was truncated by a kill, is omitted.
/// Error(Data) if the file is not a monitor.csv, or if a row is damaged; then the message names the line.
void read_monitor(const std::filesystem::path& path, const std::function<void(const MonitorRow&)>& on_row);

/// Whether a file is a monitor.csv, whatever its name.
bool is_monitor(const std::filesystem::path& path);

/// Removes the rows from window `attempt` on, and an incomplete last row. Calls `on_row` for each remaining row. Throws the errors of
/// read_monitor().
void cut_monitor(const std::filesystem::path& path, int64_t attempt, const std::function<void(const MonitorRow&)>& on_row);

/// The rows of a file by tensor.
struct MonitorLog {
  struct Series {
    std::string what{}, name{};
    std::vector<MonitorRow> rows{};  ///< in ascending order of windows; their `what` and `name` are empty
  };
  std::vector<Series> series{};     ///< in the order in which they first appear in the file
  std::vector<int64_t> attempts{};  ///< the recorded windows, ascending
};
/// Reads a file. Throws the errors of read_monitor(), and Error(Data) for rows out of order and for files of more than 1 GiB.
MonitorLog read_monitor_log(const std::filesystem::path& path);

/// The range in which a norm is expected, computed from its last 20 records. The logarithm of the norm may differ from the median of the
/// recorded logarithms by 3.5 robust standard deviations (MAD / 0.6745, as in the modified z-score of Iglewicz and Hoaglin, "How to Detect
/// and Handle Outliers", 1993). A factor of `least` from the median is always allowed, since few records underestimate their scatter. A
/// non-finite norm is always outside of the band, and so is 0 once there are enough records for a band.
class NormBand {
 public:
  explicit NormBand(double least) : least_(least) {}
  struct Limits {
    double median = 0, low = 0, high = 0;
  };
  /// Returns nullopt before 5 records.
  std::optional<Limits> limits() const;
  bool contains(double norm) const;
  void add(double norm);

 private:
  double least_;
  std::deque<double> logs_;
};

/// A gradient norm outside of its band.
struct BandExit {
  MonitorRow row{};
  std::optional<NormBand::Limits> band{};
};
/// Returns "at step 120 (window 119) the gradient of layer3.conv2.weight has the norm 37, outside of its band 0.31 to 31 around the median
/// 3.1".
std::string to_text(const BandExit& exit);

/// Returns the gradient norms of a file that are outside of their bands, in the order of its rows.
std::vector<BandExit> band_exits(const std::filesystem::path& path, double least);

/// Finds the gradient norms outside of their bands. Skipped steps do not count, because an overflow of a loss scale is expected.
class BandWatch {
 public:
  explicit BandWatch(double least) : least_(least) {}
  std::optional<BandExit> add(const MonitorRow& row);

 private:
  double least_;
  std::map<std::string, NormBand> bands_;  // by parameter
};

}  // namespace npu_train
