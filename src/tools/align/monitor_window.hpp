// The statistics that a monitor collects in one window.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/device/transfer.hpp"
#include "npu_train/dist/ranks.hpp"
#include "npu_train/tools/align/monitor_log.hpp"
#include "tools/align/moments.hpp"

namespace npu_train::detail {

// The kinds of tensors, in the order of their rows.
inline constexpr std::array kMonitored = {"weights", "activations", "gradients", "optimizer"};

// The statistics of a window, in the order in which the tensors were added.
class MonitorWindow {
 public:
  MonitorWindow(int64_t attempt, int64_t skipped_before) : attempt_(attempt), skipped_before_(skipped_before) {}

  // Adds a tensor to the statistics of this kind and name. A tensor on a device is reduced there, without a read by the host.
  void add(const char* what, const std::string& name, const at::Tensor& t);
  // Starts the only copy from the device.
  void end();
  // Waits for the copy, and adds its statistics.
  void resolve();
  // Replaces the statistics of this rank by those of all ranks. Every rank must make the call.
  void join_ranks(Ranks& ranks);
  std::vector<MonitorRow> rows(int64_t step, bool skipped) const;

  int64_t attempt() const { return attempt_; }
  int64_t skipped_before() const { return skipped_before_; }  // number of steps skipped before this window

  // Number of steps taken up to the end of the window, and whether the window was skipped.
  std::optional<std::pair<int64_t, bool>> step_after{};

 private:
  struct Entry {
    std::string what, name;
    Moments moments{};
  };
  static size_t place_of(const Entry& entry);
  Entry& entry_of(const std::string& what, const std::string& name);

  int64_t attempt_, skipped_before_;
  std::vector<Entry> entries_;
  std::map<std::pair<std::string, std::string>, size_t> index_;
  std::vector<at::Tensor> rows_;                    // rows of statistics on the device
  std::vector<std::pair<size_t, int64_t>> places_;  // for each row: index of the entry, number of elements
  HostCopy copy_;
};

}  // namespace npu_train::detail
