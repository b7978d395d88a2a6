// Converts values to leaves of a dump: statistics, checksums, files.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/dump_folder.hpp"
#include "tools/align/tensor_sink.hpp"

namespace npu_train::detail {

class LeafMaker {
 public:
  // `tensors`: folder of tensor files. `saturates`: on this device, an overflow results in the largest number of the dtype. `options` and
  // `sink` are borrowed.
  LeafMaker(const DumpOptions& options, TensorSink& sink, std::filesystem::path tensors, bool saturates);

  // Returns the leaf of a tensor. `name` is the name of the item ("Module.conv1.Conv2d.forward.0.input.0"). `keep`: writes the values of
  // the tensor, whatever the task.
  DumpNode tensor(const at::Tensor& value, const std::string& name, bool keep = false);
  // Converts any argument of an operator: tensors, lists of tensors, numbers, text.
  DumpNode value(const c10::IValue& value, const std::string& name, bool keep = false);
  static DumpNode number(double value);
  static DumpNode text(const std::string& value);

  // Reads the pending statistics of device tensors, all at once. Until then, these statistics are missing in the leaves.
  void resolve();
  // Forgets known tensors, whose values may have changed without a new version, for example by fused optimizers.
  void forget() { known_.clear(); }
  void forget(const at::Tensor& value) { known_.erase(value.unsafeGetTensorImpl()); }
  bool has_pending() const { return !rows_.empty(); }
  // Whether the node contains a value that is not finite. If overflows saturate, also whether it contains a value at the limit of its
  // dtype.
  bool overflowed(const DumpNode& node);

 private:
  // A tensor that was dumped before. `leaf` is valid as long as the tensor exists and has this version.
  struct Known {
    c10::weak_intrusive_ptr<at::TensorImpl> tensor;
    int64_t version;
    std::shared_ptr<DumpLeaf> leaf;
  };
  DumpNode again(const Known& known, const at::Tensor& value, const std::string& name, bool keep);
  void summarize(const at::Tensor& value, const std::shared_ptr<DumpLeaf>& leaf);
  void save(const at::Tensor& value, const std::string& name, DumpLeaf& leaf);
  std::string file_of(const std::string& name) const;

  const DumpOptions& options_;
  TensorSink& sink_;
  std::filesystem::path tensors_;
  bool saturates_;
  std::unordered_map<const at::TensorImpl*, Known> known_;
  std::vector<std::pair<at::Tensor, std::shared_ptr<DumpLeaf>>> rows_;  // results of device_statistics, and the leaves that wait for them
};

// Returns the ascending positions of a sample with the fraction `share` of `n` elements. They depend only on the arguments.
at::Tensor sample_positions(int64_t n, double share, uint64_t seed);

}  // namespace npu_train::detail
