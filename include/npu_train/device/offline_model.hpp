/// An offline model (.om) of Ascend's compiler ATC, run on an NPU by AscendCL: CANN's libascendcl.so, which is loaded at run time. Needs
/// neither torch_npu nor a device of libtorch; tensors are on the host.
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
  std::vector<int64_t> shape{};  ///< of one sample: without the batch, which is the first size
  /// An input that AIPP, the image preprocessing of the chip, converts and normalises: bytes [height, width, channels].
  bool aipp = false;

  /// "float32 [batch, 3, 224, 224]".
  std::string str() const;
};

class OfflineModel {
 public:
  /// Loads the file onto the NPU with this number. The model keeps memory on the device for its largest batch until it is destroyed.
  /// Error(Data) if the file cannot be read or CANN refuses it, or if its batch is not the only free size. Error(Device) if libascendcl.so
  /// or the device is missing, or CANN reports another error; Error(OutOfMemory).
  explicit OfflineModel(const std::filesystem::path& file, int device = 0);
  ~OfflineModel();
  OfflineModel(OfflineModel&&) noexcept;
  OfflineModel& operator=(OfflineModel&&) noexcept;

  /// The batch sizes for which the model was compiled, ascending.
  const std::vector<int64_t>& batches() const;
  /// The batch size for this many remaining samples: the largest one that is full, or else the smallest.
  int64_t batch_for(int64_t samples) const;
  const std::vector<OfflineTensor>& inputs() const;
  const std::vector<OfflineTensor>& outputs() const;
  const std::filesystem::path& file() const;

  /// The outputs [batch, ...] for inputs [batch, ...] in the order of inputs(), on the host. The batch must be one of batches().
  /// Error(Usage) for another batch, shape or dtype; Error(Device) if CANN reports an error. May be called from any thread, but from one at
  /// a time; the thread's current context of AscendCL is restored.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
