/// Exchange of numbers, texts and decisions between the processes of a training, between steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace npu_train {

class ProcessGroup;

/// The ranks of a training. This base class serves a training of one process; make_ranks() returns the ranks of a ProcessGroup.
///
/// Every decision of a loop must be the same on every rank: it is computed from numbers that are equal on all ranks, or made by sums(),
/// any(), of_main(), from_main() or Strategy::decide(). docs/rooms/train.md lists each decision. Every rank makes the same calls in the
/// same order, and a call that waits for other ranks throws Error(Peer) if a rank is lost.
class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }
  /// Whether this is the rank that writes files and prints.
  bool is_main() const { return rank() == 0; }
  /// Returns the index of this rank's k-th micro-batch among the micro-batches of all ranks in a window; both indices start at 0. Random
  /// numbers are keyed by the result, so one process that accumulates the micro-batches in this order draws the same numbers.
  int64_t micro_batch_number(int64_t k) const { return k * size() + rank(); }

  /// Returns the sums over ranks of numbers on the host, added in fp64 and in rank order, so every rank gets the same bits. Waits for the
  /// other ranks.
  virtual std::vector<double> sums(std::vector<double> own) { return own; }
  double sum(double own) { return sums({own})[0]; }
  /// Whether `own` is true on at least one rank.
  bool any(bool own) { return sum(own ? 1 : 0) > 0; }
  /// Returns the value of `own` on the main rank.
  bool of_main(bool own) { return any(is_main() && own); }
  /// Returns the text that the main rank gives; texts of other ranks are ignored. Waits until the main rank has made the call.
  virtual std::string from_main(std::string own) { return own; }
  /// Returns the text of each rank, in rank order.
  virtual std::vector<std::string> gather(const std::string& own) { return {own}; }
  /// Returns `own` [n] of each rank as [ranks, n], as ProcessGroup::gather() does.
  virtual at::Tensor gather(const at::Tensor& own) { return own.unsqueeze(0); }

  /// Calls `work` on the main rank, and then on the others. They wait without a time limit, as long as the main rank is alive; if its
  /// `work` throws, they get Error(Peer). For work that must not run on all ranks at once, such as a download.
  virtual void main_first(const std::function<void()>& work) { work(); }
  /// Waits until every rank has made the call.
  virtual void barrier() {}
  /// Ends the training of this rank after an error: ranks that wait for it get Error(Peer).
  virtual void abandon() noexcept {}
};

std::unique_ptr<Ranks> make_ranks(std::shared_ptr<ProcessGroup> group);

}  // namespace npu_train
