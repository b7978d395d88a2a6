// Records a forward at several input sizes: comparing the records shows whether a size is fixed or a multiple of free sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "export/onnx_model.hpp"
#include "npu_train/base/batch.hpp"
#include "npu_train/base/input_spec.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/trace/op_graph.hpp"

namespace npu_train::onnx {

/// The forward to export, with its tensors and inputs.
struct Subject {
  std::function<Outputs(const Batch&)> forward;
  ParameterSet parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  std::vector<InputSpec> inputs;      ///< empty: all fields of the example
  const char* where = "export_onnx";  ///< for error messages
};

/// A free size: its value in the first record, and in the record in which it varies.
struct FreeSize {
  std::string name;
  int64_t base = 0;
  int64_t other = 0;
};

/// A size: `factor` times the product of the free sizes with these indices.
struct Size {
  int64_t factor = 0;
  std::vector<size_t> free{};
  bool fixed() const { return free.empty(); }
};
using Sizes = std::vector<Size>;

class Records {
 public:
  /// Runs the forward at the base sizes, and once more with another value of each free size. `dynamic`: see OnnxOptions::dynamic. Composite
  /// operators for which `known` returns false are recorded as their parts. Error(Usage) if the example lacks an input, or the forward runs
  /// different operators at other sizes.
  Records(const Subject& subject, const Batch& example, const std::vector<std::string>& dynamic,
          const std::function<bool(const c10::OperatorHandle&)>& known);

  size_t count() const { return graphs_.size(); }
  const detail::OpGraph& graph(size_t record = 0) const { return graphs_[record]; }
  /// Returns the content of a value at the end of the forward; undefined if no operator reads or produces it.
  const at::Tensor& tensor(size_t value, size_t record = 0) const { return tensors_[record][value]; }
  const std::vector<FreeSize>& free() const { return free_; }
  const std::vector<InputSpec>& inputs() const { return inputs_; }
  /// Returns the value of an input; nullopt if the forward does not read it.
  std::optional<size_t> value_of_input(size_t input) const;
  const at::Tensor& input(size_t input, size_t record = 0) const { return batches_[record].at(inputs_[input].name); }
  /// Derives a size from its numbers in all records; nullopt if it depends on free sizes, but not as a multiple.
  std::optional<Size> size_of(const Ints& by_record) const;
  /// Returns whether an operator returns a number or a decision to the host instead of a tensor. The file fixes such a result. `constant`:
  /// for each value, whether it is the same for every input. Adds a warning about a branch that may differ for another input. Error(Usage)
  /// as in refuse().
  bool host_reads(size_t op, const std::vector<bool>& constant, std::vector<std::string>& warnings) const;
  /// Throws Error(Usage) about an operator; about the end of the forward if there is no such operator.
  [[noreturn]] void refuse(size_t op, const std::string& why, const std::string& hint) const;

 private:
  void choose_inputs(const Batch& example);
  void choose_free_sizes(const Batch& example, const std::vector<std::string>& dynamic);
  Batch batch_of(const Batch& example, size_t record) const;
  void collect_tensors(size_t record);
  void must_match(size_t record) const;

  const char* where_;
  std::vector<InputSpec> inputs_;
  std::vector<FreeSize> free_;
  std::vector<Batch> batches_;
  std::vector<detail::OpGraph> graphs_;
  std::vector<std::vector<at::Tensor>> tensors_;  // tensor by record, then by value
};

/// Returns the operators that write to each storage, in order.
std::unordered_map<const void*, std::vector<size_t>> writes_in(const detail::OpGraph& graph);

/// Returns "operator aten::view of the layer 'head' (number 12 of the forward)".
std::string described(const detail::OpGraph& graph, size_t op);

}  // namespace npu_train::onnx
