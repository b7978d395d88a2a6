/// Which operators a training step dispatches, on what, how often, and how long each took.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train {

/// All calls of one operator in one phase on one dtype. Of operators that call others the outermost counts, as the model's code wrote it.
struct OperatorUse {
  std::string library, name, overload;  ///< "aten", "add", "Tensor"
  std::string phase;                    ///< forward | backward | reduce | unscale | clip | optimizer
  std::string dtype;                    ///< of its first tensor, in the words of device/operator_support.hpp ("fp32"); "" without a tensor
  /// What autocast did: "to bf16", "to fp32", "as given"; "" where it was off. Casts and the promotion of types are not its doing.
  std::string autocast;
  std::vector<std::string> shapes;  ///< of its tensors, distinct, the first few: "[8, 3, 32, 32] x [64, 3, 3, 3]"
  int64_t distinct_shapes = 0, calls = 0;
  double seconds = 0;  ///< on the host's clock: of a device that works behind the host's back it is the time to launch
  int64_t flops = 0;
  std::vector<std::string> layers;  ///< whose parameters it takes, the first few
  bool dynamic_shape = false;       ///< the size of its output follows from values
  bool host_read = false;           ///< the host waits for a value of it (a finding in forward and backward alone)
  bool works = false;               ///< computes on more than one number: not only views, casts and counters

  /// "add.Tensor", and with another library's name before it where that is not ATen.
  std::string full_name() const;
  /// The dtype behind autocast.
  std::string computed_in() const;
};

/// Collects while phases run. Observe a trainer with it (Trainer::add_observer), or call phase_begin and phase_end around parts of a loop
/// of your own. Sees the thread that calls, and the backward passes that it starts.
class OperatorInventory : public StepObserver, private OpListener {
 public:
  explicit OperatorInventory(ParameterSet parameters);
  ~OperatorInventory() override;

  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;

  /// So far, the longest first.
  std::vector<OperatorUse> uses() const;
  /// What operators called, by full name: made of which others they are, on the device where the step ran.
  const std::map<std::string, std::set<std::string>>& parts() const { return parts_; }
  /// Of the attention operators seen: heads and size of a head, [heads, size] distinct.
  const std::vector<std::pair<int64_t, int64_t>>& heads() const { return heads_; }
  /// Widths that losses were computed over: numbers of classes or targets, which the data decides.
  const std::set<int64_t>& classes() const { return classes_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // full name, phase, dtype
  void op_begins(const SeenOp& op) override;
  void op_ended(const SeenOp& op) override;
  bool sees_all() const override { return true; }
  void part_seen(const std::string& whole, const std::string& part) override { parts_[whole].insert(part); }
  bool sees_parts() const override { return true; }
  void note_heads(const SeenOp& op);
  void note_classes(const SeenOp& op);

  ParameterSet parameters_;
  std::string phase_;
  std::unique_ptr<OpObserver> observer_;
  std::map<Key, OperatorUse> uses_;
  std::map<std::string, std::set<std::string>> parts_;
  std::vector<std::pair<int64_t, int64_t>> heads_;
  std::set<int64_t> classes_;
  double began_ = 0;
};

}  // namespace npu_train
