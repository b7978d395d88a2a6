// One forward, recorded at several sizes of its inputs: by comparing the records, every size is a number or a multiple of free sizes.
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
#include "npu_train/base/outputs.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/trace/op_graph.hpp"

namespace npu_train::onnx {

/// What is exported.
struct Subject {
  std::function<Outputs(const Batch&)> forward;
  ParameterSet parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  std::vector<InputSpec> inputs;      ///< empty: all fields of the example
  const char* where = "export_onnx";  ///< of errors
};

/// A free size, with its value in the first record and in the one where it differs.
struct FreeSize {
  std::string name;
  int64_t base = 0;
  int64_t other = 0;
};

/// `factor` times the product of free sizes, given as indices.
struct Size {
  int64_t factor = 0;
  std::vector<size_t> free{};
  bool fixed() const { return free.empty(); }
};
using Sizes = std::vector<Size>;

class Records {
 public:
  /// Runs the forward at the base sizes, and once for each free size with another value of it. `dynamic` as OnnxOptions::dynamic; operators
  /// for which `known` returns false are recorded as their parts, if they have any. Error(Usage) if the example does not have the inputs,
  /// or if the forward runs other operators at other sizes.
  Records(const Subject& subject, const Batch& example, const std::vector<std::string>& dynamic,
          const std::function<bool(const c10::OperatorHandle&)>& known);

  size_t count() const { return graphs_.size(); }
  const detail::OpGraph& graph(size_t record = 0) const { return graphs_[record]; }
  /// The content of a value at the end of the forward; undefined if no operator reads or gives it.
  const at::Tensor& tensor(size_t value, size_t record = 0) const { return tensors_[record][value]; }
  const std::vector<FreeSize>& free() const { return free_; }
  const std::vector<InputSpec>& inputs() const { return inputs_; }
  /// The value of an input; nothing if the forward does not read it.
  std::optional<size_t> value_of_input(size_t input) const;
  const at::Tensor& input(size_t input, size_t record = 0) const { return batches_[record].at(inputs_[input].name); }
  /// From its numbers in the records; nothing if it depends on free sizes in another way than as a multiple.
  std::optional<Size> size_of(const Ints& by_record) const;

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
  std::vector<std::vector<at::Tensor>> tensors_;  // by record and value
};

/// Whether an operator ("size", "numel") reads no element of its tensors.
bool reads_shape_only(const std::string& name);

/// The operators that change memory, in order, by its storage.
std::unordered_map<const void*, std::vector<size_t>> writes_in(const detail::OpGraph& graph);

/// "operator aten::view of the layer 'head' (number 12 of the forward)".
std::string described(const detail::OpGraph& graph, size_t op);

}  // namespace npu_train::onnx
