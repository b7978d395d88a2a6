#include "npu_train/device/device.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "device/builtin_backends.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {
namespace {

std::vector<std::string> known_kinds() {
  std::vector<std::string> out;
  for (const auto* backend : all_backends()) out.push_back(backend->name());
  std::sort(out.begin(), out.end());
  return out;
}

bool is_added(const DeviceBackend& backend) {
  const auto& builtin = detail::builtin_backends();
  return std::find(builtin.begin(), builtin.end(), &backend) == builtin.end();
}

std::mutex choice_mutex;
std::string chosen;  // see chosen_kind()

// Activates the backend. libtorch has one PrivateUse1 per process; the first kind that is activated keeps it.
void choose(const DeviceBackend& backend) {
  const auto kind = backend.name();
  if (kind == "cpu" || kind == "cuda") return backend.activate();
  const std::lock_guard<std::mutex> lock(choice_mutex);
  auto other = chosen == kind ? "" : chosen;
  if (is_added(backend) && chosen.empty())
    for (const auto* npu : {&detail::npu_backend(), &detail::sim_npu_backend()})
      if (npu->is_available()) other = npu->name();
  if (!other.empty())
    throw Error(ErrorKind::Device, "device " + kind,
                "this process uses the device " + other + ", and libtorch has one such device per process", "start another process");
  backend.activate();
  if (is_added(backend) && backend.is_available()) chosen = kind;
}

constexpr int kMaxIndex = 127;  // c10::DeviceIndex is 8 bits wide

// Returns a hint if `kind` is a name that other programs use for a device ("gpu"), otherwise "".
std::string other_name(const std::string& kind) {
  const auto word = to_lower(kind);
  if (word == "gpu" || word == "nvidia") return "write cuda for an NVIDIA GPU, or auto for whatever is there";
  if (word == "ascend" || word == "privateuseone") return "write npu for an Ascend NPU, or auto for whatever is there";
  return "";
}

[[noreturn]] void refuse(const std::string& text) {
  const auto kind = text.substr(0, text.find(':'));
  const auto kinds = known_kinds();
  const auto near = nearest_name(kind, kinds);
  const auto meant = other_name(kind);
  const auto allowed = join({kinds.begin(), kinds.end() - 1}) + " and " + kinds.back();
  throw Error(ErrorKind::Usage, "device",
              "'" + text + "' is not a device; allowed are auto, " + allowed + ", all but auto and cpu also with an index as in cuda:0",
              !meant.empty() ? meant
              : near.empty() ? ""
                             : "did you mean " + near + "?");
}

// Returns whether "auto" can use the device. If a device is present but unusable, logs a warning; the caller then tries the next kind.
bool can_be_used(const DeviceBackend& backend) {
  try {
    choose(backend);
  } catch (const Error& e) {
    log_warning(std::string("device auto: there are signs of a device ") + backend.name() + " that cannot be used: " + e.what());
  }
  return backend.is_available();
}

}  // namespace

std::string detail::chosen_kind() {
  const std::lock_guard<std::mutex> lock(choice_mutex);
  return chosen;
}

Device Device::parse(const std::string& text) {
  const auto colon = text.find(':');
  Device out{.kind = text.substr(0, colon)};
  if (find_backend(out.kind) == nullptr) refuse(text);
  if (colon == std::string::npos) return out;
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, out.index);
  if (begin == end || stop != end || error != std::errc() || out.index < 0 || out.index > kMaxIndex || (out.is_cpu() && out.index != 0))
    refuse(text);
  return out;
}

std::string Device::str() const { return is_cpu() ? kind : kind + ":" + std::to_string(index); }

c10::Device Device::c10() const {
  if (is_cpu()) return c10::Device(c10::DeviceType::CPU);
  const auto type = kind == "cuda" ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
  return {type, static_cast<c10::DeviceIndex>(index)};
}

Device device_of(const c10::Device& device) {
  const int index = device.has_index() ? device.index() : 0;
  if (device.is_cpu()) return {};
  if (device.is_cuda()) return {"cuda", index};
  check(device.is_privateuseone(), ErrorKind::Usage, "device", "npu_train does not run on ", device.str());
  if (const auto kind = detail::chosen_kind(); !kind.empty()) return {kind, index};
  if (backend_of({"sim_npu", 0}).is_available()) return {"sim_npu", index};
  // The host program may have loaded torch_npu without our help.
  if (c10::impl::hasDeviceGuardImpl(device.type())) backend_of({"npu", 0}).activate();
  return {"npu", index};
}

Device resolve_device(const std::string& text) {
  if (text == "auto") {
    for (const auto* backend : all_backends())
      if (backend->name() != "sim_npu" && backend->may_be_there() && can_be_used(*backend)) return {backend->name(), 0};
  }
  const auto device = Device::parse(text);
  const auto& backend = backend_of(device);
  choose(backend);
  if (!backend.is_available()) throw Error(ErrorKind::Device, "device " + text, backend.why_not());
  check(device.index < backend.count(), ErrorKind::Device, "device", text, " does not exist: this machine has ", backend.count(), " of ",
        device.kind, ", counted from 0");
  return device;
}

}  // namespace npu_train
