#include "npu_train/tools/probe/process_facts.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <caffe2/core/common.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <filesystem>

namespace npu_train {
namespace {

std::string torch_library_version() {
  const auto& options = caffe2::GetBuildOptions();
  const auto found = options.find("TORCH_VERSION");
  return found == options.end() ? "" : found->second;
}

std::string torch_library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code none;
  const auto file = std::filesystem::canonical(info.dli_fname, none);
  return none || file.extension() == "" ? "" : file.parent_path().string();
}

void read_cuda(ProcessFacts& out) {
  if (!at::hasCUDA()) {
    // a CUDA build without a usable GPU still has its hooks
    if (!at::detail::getCUDAHooks().hasCUDART()) return;
  }
  try {
    out.cuda_runtime = static_cast<int>(at::detail::getCUDAHooks().versionCUDART());
    out.cuda_devices = at::detail::getCUDAHooks().getNumGPUs();
  } catch (const std::exception&) {
    // built with CUDA, but the driver does not respond: no devices
  }
  using Backend = at::Float32Backend;
  const auto& context = at::globalContext();
  out.tf32_matmul = context.float32Precision(Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
  out.tf32_conv = context.float32Precision(Backend::CUDA, at::Float32Op::CONV) == at::Float32Precision::TF32;
}

}  // namespace

ProcessFacts this_process() {
  auto out = process_without_libtorch(TORCH_VERSION);
  out.torch_loaded = true;
  out.torch_library = torch_library_version();
  out.torch_folder = torch_library_folder();
  out.cpu_capability = at::get_cpu_capability();
  out.threads = at::get_num_threads();
  read_cuda(out);
  return out;
}

}  // namespace npu_train
