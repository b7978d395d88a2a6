// A TorchScript module with the submodules, parameters and buffers of a module, without methods.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <memory>
#include <unordered_map>

namespace npu_train::script {

class ModuleMirror {
 public:
  /// Copies the module. A tensor or module that is registered twice is shared in the copy, too.
  torch::jit::Module copy(const torch::nn::Module& from);

 private:
  at::Tensor copy(const at::Tensor& from);

  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
  std::unordered_map<const torch::nn::Module*, torch::jit::Module> modules_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
};

}  // namespace npu_train::script
