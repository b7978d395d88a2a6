/// An offline model (.om) that Ascend's compiler ATC wrote. AscendCL (CANN's libascendcl.so, loaded at run time) runs it on an NPU. It
/// needs neither torch_npu nor a device of libtorch; tensors are on the host.
///
///   npu_train::OfflineModel model("model.om");
///   const auto logits = model.run({images})[0];  // images: [batch, ...] of one of the batch sizes that the model was compiled for
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace npu_train {

/// An input or output of an offline model.
struct OfflineTensor {
  std::string name{};
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape{};  ///< sizes of one sample, without the batch dimension, which comes first
  /// true: AIPP (the chip's image preprocessing) converts and normalises this input, which is bytes [height, width, channels].
  bool aipp = false;

  /// Returns "float32 [batch, 3, 224, 224]".
  std::string str() const;
};

class OfflineModel {
 public:
  /// Loads the file onto NPU number `device`. The model keeps device memory for its largest batch until it is destroyed. Error(Data) if the
  /// file cannot be read, if CANN refuses it, or if a size other than the batch is free. Error(OutOfMemory) if memory is exhausted.
  /// Error(Device) if libascendcl.so or the device is missing, or if CANN reports another error.
  explicit OfflineModel(const std::filesystem::path& file, int device = 0);
  ~OfflineModel();
  OfflineModel(OfflineModel&&) noexcept;
  OfflineModel& operator=(OfflineModel&&) noexcept;

  /// Returns the batch sizes that the model was compiled for, ascending.
  const std::vector<int64_t>& batches() const;
  /// Returns the batch size to use for `samples` remaining samples: the largest one that they fill, otherwise the smallest.
  int64_t batch_for(int64_t samples) const;
  const std::vector<OfflineTensor>& inputs() const;
  const std::vector<OfflineTensor>& outputs() const;
  const std::filesystem::path& file() const;

  /// Returns the outputs [batch, ...] for inputs [batch, ...] in the order of inputs(), on the host. The batch must be one of batches().
  /// Error(Usage) for another batch, shape or dtype; Error(Device) if CANN reports an error. May be called from any thread, but by only one
  /// thread at a time. Restores the thread's current AscendCL context.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
