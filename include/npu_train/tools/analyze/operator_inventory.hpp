/// The operators that a training step dispatches: inputs, numbers of calls and times.
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

/// All calls of one operator with one dtype in one phase. If an operator calls others, only the outermost one counts, which is the one that
/// the model's code calls.
struct OperatorUse {
  std::string library, name, overload;  ///< "aten", "add", "Tensor"
  std::string phase;                    ///< forward | backward | reduce | unscale | clip | optimizer
  std::string dtype;  ///< dtype of its first tensor, as named in device/operator_support.hpp ("fp32"); "" without a tensor
  /// The effect of autocast: "to bf16", "to fp32", "as given"; "" if it was off. Explicit casts and type promotion are not included.
  std::string autocast;
  std::vector<std::string> shapes;  ///< the first few distinct shapes of its tensors: "[8, 3, 32, 32] x [64, 3, 3, 3]"
  int64_t distinct_shapes = 0, calls = 0;
  double seconds = 0;  ///< measured by the host's clock; on an asynchronous device, this is the time to launch the operator
  int64_t flops = 0;
  std::vector<std::string> layers;  ///< the first few layers whose parameters it uses
  bool dynamic_shape = false;       ///< the size of its output depends on values
  bool host_read = false;           ///< the host waits for one of its values, which is a finding only in forward and backward
  bool works = false;               ///< computes more than one number; views, casts and counters do not

  /// Returns "add.Tensor", preceded by the library's name unless it is ATen.
  std::string full_name() const;
  /// Returns the dtype after autocast.
  std::string computed_in() const;
};

/// Collects operators while phases run. Attach it to a trainer (Trainer::add_observer), or call phase_begin and phase_end around parts of
/// your own loop. Observes the calling thread and the backward passes that this thread starts.
class OperatorInventory : public StepObserver, private OpListener {
 public:
  explicit OperatorInventory(ParameterSet parameters);
  ~OperatorInventory() override;

  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;

  /// Returns the operators so far, longest first.
  std::vector<OperatorUse> uses() const;
  /// Returns, for the full name of each operator, the full names of the operators that it called on the device of the step.
  const std::map<std::string, std::set<std::string>>& parts() const { return parts_; }
  /// Returns the distinct pairs [number of heads, head size] of attention operators.
  const std::vector<std::pair<int64_t, int64_t>>& heads() const { return heads_; }
  /// Returns the numbers of classes or targets over which losses were computed; the data determine these numbers.
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
