// A stand-in for libtorch_npu.so: the entry points that npu_train calls, with what bites in torch_npu 2.11 (the allocator is no
// DeviceAllocator, the hooks give neither a count of devices nor a default generator, a failed start only warns). Its memory is the host's
// and its kernels are the CPU's, by copies.
//
//   FAKE_NPU_SOC      the chip's name, Ascend910A by default
//   FAKE_NPU_DEVICES  how many, 2 by default
//   FAKE_NPU_BROKEN   1: the device cannot be started
//   FAKE_NPU_THROWS   1: start (of a broken device) and end throw instead of warning
//   FAKE_NPU_TRACE    a file to which starts and ends are appended
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;
constexpr int kMost = 8;

std::string setting(const char* name, const char* otherwise) {
  const char* set = std::getenv(name);
  return set != nullptr ? set : otherwise;
}
c10::DeviceIndex devices() { return static_cast<c10::DeviceIndex>(std::stoi(setting("FAKE_NPU_DEVICES", "2"))); }
void trace(const char* what) {
  if (const auto file = setting("FAKE_NPU_TRACE", ""); !file.empty()) std::ofstream(file, std::ios::app) << what << "\n";
}
void check_works() { TORCH_CHECK(setting("FAKE_NPU_BROKEN", "") != "1", "npu device 0 init failed, error code is 507899"); }

thread_local c10::DeviceIndex current = 0;
std::array<float, kMost> status{};

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    check_works();
    auto host = c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* data = host.release_context();
    return {data, data, raw_deleter(), c10::Device(kNpu, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
} allocator;
REGISTER_ALLOCATOR(kNpu, &allocator);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kNpu, current}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return devices(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex index) {
    device_ = c10::Device(kNpu, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override { return devices() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetDefaultCPUAllocator(); }
  bool isPinnedPtr(const void*) const override { return false; }
};

at::Tensor on_host(const at::Tensor& t) {
  return at::from_blob(const_cast<void*>(t.const_data_ptr()), t.sizes(), t.strides(), at::TensorOptions().dtype(t.dtype()));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat),
                                   format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  const auto host = [](const at::Tensor& t) { return t.is_cpu() ? t : on_host(t); };
  host(to).copy_(host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) {
    auto* impl = to.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(empty(from.sizes(), to.scalar_type(), {}, to.device(), {}, {}).storage());
    impl->set_sizes_contiguous(from.sizes());
  }
  return copy_from(from, to, false);
}

at::Tensor as_strided(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<int64_t> offset) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(t.storage()), t.key_set(), t.dtype());
  out.unsafeGetTensorImpl()->set_storage_offset(offset.value_or(t.storage_offset()));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return out;
}

at::Scalar local_scalar(const at::Tensor& t) { return at::native::_local_scalar_dense_cpu(on_host(t)); }

at::Tensor alloc_float_status(const at::Tensor& self) { return at::zeros({8}, self.options()); }
at::Tensor get_float_status(const at::Tensor& self, int64_t) { return self.fill_(status[self.device().index()]); }
at::Tensor clear_float_status(const at::Tensor& self, int64_t) {
  status[self.device().index()] = 0;
  return self.fill_(0);
}

void on_the_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("npu_alloc_float_status(Tensor self) -> Tensor");
  m.def("npu_get_float_status(Tensor self, int mode=0) -> Tensor");
  m.def("npu_clear_float_status(Tensor self, int mode=0) -> Tensor");
}
TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  m.impl("npu_alloc_float_status", TORCH_FN(alloc_float_status));
  m.impl("npu_get_float_status", TORCH_FN(get_float_status));
  m.impl("npu_clear_float_status", TORCH_FN(clear_float_status));
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* composite : {"convolution", "convolution_backward"})
    m.impl(composite, torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>()); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
}

const bool registered = [] {
  c10::register_privateuse1_backend("npu");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

// The names under which npu_train looks them up.
namespace torch_npu {
void init_npu(c10::DeviceIndex) {
  trace("init");
  if (setting("FAKE_NPU_THROWS", "") == "1") check_works();
  try {
    check_works();
  } catch (const c10::Error& e) {
    TORCH_WARN(e.what_without_backtrace());
  }
}
void finalize_npu() {
  trace("finalize");
  TORCH_CHECK(setting("FAKE_NPU_THROWS", "") != "1", "NPU sys finalize failed.");
}
}  // namespace torch_npu

namespace at_npu::detail {
const at::Generator& getDefaultNPUGenerator(c10::DeviceIndex index) {
  static const auto* all = [] {
    auto* out = new std::vector<at::Generator>;
    for (int i = 0; i < kMost; ++i) out->push_back(at::make_generator<::Generator>(static_cast<c10::DeviceIndex>(i)));
    return out;
  }();
  return (*all)[index < 0 ? current : index];
}
}  // namespace at_npu::detail

#ifdef FAKE_NPU_SAYS_INF_NAN
namespace c10_npu {
bool IsSupportInfNan() { return setting("FAKE_NPU_INF_NAN", "0") == "1"; }
}  // namespace c10_npu
#endif

extern "C" {
const char* aclrtGetSocName() {
  static std::string name;
  name = setting("FAKE_NPU_SOC", "Ascend910A");
  return name.c_str();
}
int aclrtGetMemInfo(int, size_t* free, size_t* total) {
  *free = size_t{20} << 30;
  *total = size_t{32} << 30;
  return 0;
}
// For the tests: an operator overflows on `device`.
void fake_npu_overflow(int device) { status[device] = 1; }
}
