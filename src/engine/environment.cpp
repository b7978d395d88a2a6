#include "npu_train/engine/environment.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string_view>

#include "npu_train/core/c_library.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {
namespace {

using Facts = std::map<std::string, std::string>;

constexpr std::array<std::string_view, 5> kVariables = {"ATEN_CPU_CAPABILITY", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG",
                                                        "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"};
constexpr std::array<std::string_view, 10> kVariablePrefixes = {"OMP_",    "KMP_",          "MKL_",  "DNNL_", "ONEDNN_",
                                                                "ASCEND_", "INF_NAN_MODE_", "HCCL_", "NPU_",  "PYTORCH_"};
constexpr std::array<std::string_view, 5> kSecretWords = {"TOKEN", "SECRET", "PASS", "CREDENTIAL", "KEY"};
constexpr size_t kLongestValue = 1000;

bool is_allowed_variable(std::string_view name) {
  const auto has_word = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (std::any_of(kSecretWords.begin(), kSecretWords.end(), has_word)) return false;
  if (name == "NPU_TRAIN_ALLOCATOR") return false;  // the allocator does not affect results
  return std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end() ||
         std::any_of(kVariablePrefixes.begin(), kVariablePrefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
}

void add_variables(Facts& facts) {
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || !is_allowed_variable(text.substr(0, equals))) continue;
    facts["env." + std::string(text.substr(0, equals))] = text.substr(equals + 1, kLongestValue);
  }
}

// Returns "model name" on x86, and the numbers of implementer and part on ARM, which reports no name.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string arm;
  for (std::string line; std::getline(file, line) && arm.size() < 200;) {
    const auto colon = line.find(": ");
    if (line.empty() && !arm.empty()) break;  // the first core is complete
    if (colon == std::string::npos) continue;
    const auto key = line.substr(0, line.find_first_of("\t:"));
    if (key == "model name" || key == "Model" || key == "Hardware") return line.substr(colon + 2);
    if (key == "CPU implementer" || key == "CPU part" || key == "CPU variant") arm += (arm.empty() ? "" : " ") + line.substr(colon + 2);
  }
  return arm.empty() ? "unknown" : "ARM " + arm;
}

std::string machine() {
  ::utsname names{};
  return ::uname(&names) == 0 ? names.machine : "unknown";
}

bool flushes_denormals() {
  const volatile float smallest = std::numeric_limits<float>::min();
  const volatile float half = smallest / 2;
  return half == 0;
}

// Joins the lines in which libraries describe themselves.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  const auto end = text.find_last_not_of(' ');
  return end == std::string::npos ? "none" : text.substr(0, end + 1);
}

const char* on_off(bool on) { return on ? "on" : "off"; }

void add_precision(Facts& facts, const at::Context& context) {
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  const auto add = [&](const char* name, Backend backend, Op op) {
    facts[std::string("float32.") + name] = at::precision2str(context.float32Precision(backend, op));
  };
  add("all", Backend::GENERIC, Op::ALL);
  add("cuda.matmul", Backend::CUDA, Op::MATMUL);
  add("cuda.conv", Backend::CUDA, Op::CONV);
  add("mkldnn.matmul", Backend::MKLDNN, Op::MATMUL);
  add("mkldnn.conv", Backend::MKLDNN, Op::CONV);
  facts["cublas.fp16_reduction"] = std::to_string(static_cast<int>(context.allowFP16ReductionCuBLAS()));
  facts["cublas.bf16_reduction"] = std::to_string(static_cast<int>(context.allowBF16ReductionCuBLAS()));
  facts["cudnn.benchmark"] = on_off(context.benchmarkCuDNN());
  facts["cudnn.deterministic"] = on_off(context.deterministicCuDNN());
}

}  // namespace

std::map<std::string, std::string> environment() {
  const auto& context = at::globalContext();
  const bool deterministic = context.deterministicAlgorithms();
  Facts facts = {{"npu_train", NPU_TRAIN_VERSION},
                 {"libtorch", TORCH_VERSION},
                 {"compiler", __VERSION__},
                 {"machine", machine()},
                 {"openmp", one_line(at::get_openmp_version())},
                 {"mkl", one_line(at::get_mkl_version())},
                 {"mkldnn.version", one_line(at::get_mkldnn_version())},
                 {"libc", c_library()},
                 {"cpu", cpu_model()},
                 {"cpu_capability", at::get_cpu_capability()},
                 {"threads", std::to_string(at::get_num_threads())},
                 {"mkldnn", on_off(at::hasMKLDNN() && context.userEnabledMkldnn())},
                 {"deterministic", deterministic && context.deterministicAlgorithmsWarnOnly() ? "warn" : on_off(deterministic)},
                 {"flush_denormal", on_off(flushes_denormals())}};
  add_precision(facts, context);
  add_variables(facts);
  return facts;
}

void write_environment(const std::filesystem::path& path) {
  Json json = Json::object();
  for (const auto& [name, value] : environment()) json.push_member(name, value);
  save_json(path, json);
}

std::map<std::string, std::string> read_environment(const std::filesystem::path& path) {
  const auto json = load_json(path, {.max_bytes = uint64_t{4} << 20});
  Facts out;
  for (const auto& [name, value] : json.members(path.string())) out.emplace(name, value.text(path.string() + ": " + name));
  return out;
}

}  // namespace npu_train
