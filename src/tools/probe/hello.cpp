#include "npu_train/tools/probe/hello.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

constexpr const char* kHello = "hello";
constexpr double kBudget = 2;  // limit of the repetitions in seconds, since fp16 is slow on a CPU without fp16 units

// Returns uniform numbers in [-1, 1) with 24 bits, the same on every machine.
at::Tensor fixed_matrix(int64_t size, uint64_t seed) {
  auto out = at::empty({size, size}, at::kFloat);
  uint64_t state = seed;
  float* values = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size * size; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] = static_cast<float>(state >> 40) * 0x1p-23F - 1.0F;
  }
  return out;
}

Finding failed(const std::string& name, const Error& e) {
  Finding f{kHello, name, Verdict::Fail, "it failed", e.what(), "npu_tool doctor --explain 'TEXT OF THE ERROR' explains its codes"};
  if (e.kind() == ErrorKind::Device) f.finding = "the device failed or disappeared";
  if (e.kind() == ErrorKind::OutOfMemory) {
    f.finding = "the device has no memory left";
    f.fix = "end other processes on the device";
  }
  return f;
}

bool lacks_bf16(const Device& device) { return !device.is_cpu() && !backend_of(device).capabilities(device).native_bf16; }

Finding product(const Device& device, c10::ScalarType dtype, int64_t size) {
  const auto name = device.str() + " " + dtype_name(dtype);
  try {
    if (dtype == at::kBFloat16 && lacks_bf16(device))
      return {kHello, name, Verdict::NotHere, "this device does not multiply bf16", "its capabilities"};
    return judge_matmul(device, dtype, translated("hello", [&] { return hello_matmul(device, dtype, size); }));
  } catch (const Error& e) {
    return failed(name, e);
  }
}

Finding one_step(const Device& device, const std::string& precision, const TrainingStep& step) {
  try {
    if (precision.starts_with("bf16") && lacks_bf16(device))
      return {kHello, device.str() + " step " + precision, Verdict::NotHere, "this device does not multiply bf16", "its capabilities"};
    auto f = translated("hello", [&] { return step(device, precision); });
    f.area = kHello;
    return f;
  } catch (const Error& e) {
    return failed(device.str() + " step " + precision, e);
  }
}

}  // namespace

MatmulResult hello_matmul(const Device& device, c10::ScalarType dtype, int64_t size, int repetitions) {
  check(size > 0 && repetitions > 0, ErrorKind::Usage, "hello", "size ", size, " and ", repetitions,
        " repetitions; both must be at least 1");
  const auto& backend = backend_of(device);
  const auto a = fixed_matrix(size, 1).to(dtype), b = fixed_matrix(size, 2).to(dtype);
  const auto reference = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
  const auto da = a.to(device.c10()), db = b.to(device.c10());
  MatmulResult out{.milliseconds = std::numeric_limits<double>::infinity()};
  at::Tensor product;
  double spent = 0;
  for (int i = 0; i < repetitions && (i < 2 || spent < kBudget); ++i) {
    backend.synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    product = at::matmul(da, db);
    backend.synchronize(device);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    out.milliseconds = std::min(out.milliseconds, seconds * 1e3);
    spent += seconds;
  }
  const auto here = product.cpu().to(at::kDouble);
  const auto norm = [](const at::Tensor& t) { return at::linalg_vector_norm(t).item<double>(); };
  out.finite = at::isfinite(here).all().item<bool>();
  out.norm = norm(here);
  out.relative_error = norm(here.sub(reference)) / norm(reference);
  return out;
}

double hello_tolerance(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-12;
    case at::kHalf:
      return 2 * 0x1p-10;
    case at::kBFloat16:
      return 2 * 0x1p-7;
    default:
      return 1e-4;
  }
}

Finding judge_matmul(const Device& device, c10::ScalarType dtype, const MatmulResult& result) {
  const auto allowed = hello_tolerance(dtype);
  Finding f{kHello, device.str() + " " + dtype_name(dtype), Verdict::Ok, "",
            "product of fixed matrices, compared with the CPU's in fp64; allowed: " + short_number(allowed, 3)};
  f.finding = short_number(result.milliseconds, 3) + " ms, norm " + short_number(result.norm, 6) + ", relative error " +
              short_number(result.relative_error, 3) + ", " + (result.finite ? "finite" : "not finite");
  if (result.finite && result.relative_error <= allowed) return f;
  f.verdict = Verdict::Fail;
  const bool tf32 = device.kind == "cuda" && dtype == at::kFloat && result.finite && result.relative_error < 2e-3;
  f.fix = tf32 ? "this is the error of TF32: unset NVIDIA_TF32_OVERRIDE and TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
               : "the device computes wrong results: repeat the check; if the error remains, compare the driver and library versions "
                 "above, check for memory errors "
                 "of the device (npu-smi info -t ecc, nvidia-smi -q -d ECC), and do not train on it";
  return f;
}

std::vector<Finding> check_hello(const std::vector<Device>& devices, const HelloOptions& options) {
  std::vector<Finding> out;
  for (const auto& device : devices) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) out.push_back(product(device, dtype, options.size));
    if (!options.step) continue;
    for (const auto& precision : options.precisions) out.push_back(one_step(device, precision, options.step));
  }
  return out;
}

std::vector<Device> usable_devices(std::vector<Finding>& problems) {
  std::vector<Device> out;
  for (const auto* backend : all_backends()) {
    if (backend->name() == "sim_npu" || !backend->may_be_there()) continue;
    try {
      backend->activate();
      for (int i = 0; i < backend->count(); ++i) out.push_back({backend->name(), i});
    } catch (const Error& e) {
      problems.push_back({kHello, backend->name(), Verdict::Fail,
                          "there are signs of a device " + backend->name() + ", but it does not start", e.what(),
                          "fix the failures above"});
    }
  }
  return out;
}

}  // namespace npu_train
