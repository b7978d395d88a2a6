// The device: the kind of chip, the number of devices, the current device of a thread, error texts.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "acl.hpp"
#include "streams.hpp"

namespace sim_cann {
namespace {

// has_graphs follows the table of products of aclmdlRICaptureBegin in CANN's documents. Of these chips, only the first generation has none.
constexpr std::array<Soc, 8> kSocs = {{{"Ascend910A", 32, 32, 32, true, false, false},
                                       {"Ascend910B1", 64, 24, 48, false, true, true},
                                       {"Ascend910B2", 64, 24, 48, false, true, true},
                                       {"Ascend910B3", 64, 20, 40, false, true, true},
                                       {"Ascend910B4", 32, 20, 40, false, true, true},
                                       {"Ascend910_9391", 64, 24, 48, false, true, true},
                                       {"Ascend910_9392", 64, 24, 48, false, true, true},
                                       {"Ascend310P3", 24, 8, 8, true, false, true}}};

[[noreturn]] void end_with(const std::string& text) {
  std::fprintf(stderr, "sim_cann: %s\n", text.c_str());
  std::_Exit(2);  // CANN's functions cannot report an error before a device is opened
}

Soc find_soc() {
  const char* set = std::getenv("SIM_CANN_SOC");
  std::string name = set == nullptr ? "Ascend910B1" : set;
  if (!name.starts_with("Ascend")) name = "Ascend" + name;
  if (name == "Ascend910_93") name = "Ascend910_9391";
  std::string allowed;
  for (const auto& soc : kSocs) {
    if (name == soc.name) return soc;
    allowed += allowed.empty() ? soc.name : std::string(", ") + soc.name;
  }
  end_with("SIM_CANN_SOC=" + std::string(set) + " is no chip that it plays; allowed: " + allowed);
}

// Returns the numbers of the process's devices in the machine. As with CANN, a process sees the devices in ASCEND_RT_VISIBLE_DEVICES.
std::vector<int> find_devices() {
  const char* set = std::getenv("SIM_CANN_DEVICES");
  int count = 1;
  if (set != nullptr) {
    char* end = nullptr;
    const int64_t given = std::strtol(set, &end, 10);
    if (*set == '\0' || *end != '\0' || given < 1 || given > 16) end_with(std::string("SIM_CANN_DEVICES=") + set + "; allowed: 1 to 16");
    count = static_cast<int>(given);
  }
  const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  std::vector<int> seen;
  if (visible == nullptr) {
    for (int device = 0; device < count; ++device) seen.push_back(device);
    return seen;
  }
  for (const char* at = visible; *at != '\0';) {  // as with CANN, the list ends at the first device that does not exist
    char* end = nullptr;
    const int64_t index = std::strtol(at, &end, 10);
    if (end == at || index < 0 || index >= count) break;
    seen.push_back(static_cast<int>(index));
    at = *end == ',' ? end + 1 : end;
  }
  return seen;
}

thread_local int device_of_thread = -1;
thread_local std::string recent_error, given_error;
std::atomic<bool> initialised{false};
std::array<std::atomic<bool>, 16> overflowed{};
std::atomic<int> overflow_mode{-1};
std::array<std::atomic<int64_t>, 16> system_options{};
std::array<char, 16> contexts{};  // the address of an element is a device's primary context

bool is_device(int64_t device) { return device >= 0 && device < device_count(); }

int no_such_device(int64_t device) {
  return fail(kInvalidDevice,
              "EE1001: there is no device " + std::to_string(device) + "; allowed: 0 to " + std::to_string(device_count() - 1));
}

}  // namespace

const Soc& soc() {
  static const Soc chosen = find_soc();
  return chosen;
}

namespace {
const std::vector<int>& devices() {
  static const std::vector<int> found = find_devices();
  return found;
}
}  // namespace

int device_count() { return static_cast<int>(devices().size()); }
int physical_device(int device) { return devices().at(static_cast<size_t>(device)); }

int current_device() { return device_of_thread < 0 ? 0 : device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

int fail(int code, std::string text) {
  recent_error = std::move(text);
  return code;
}

void raise_float_status(int device) { overflowed[static_cast<size_t>(device)] = true; }
bool float_status(int device) { return overflowed[static_cast<size_t>(device)]; }
void clear_float_status(int device) { overflowed[static_cast<size_t>(device)] = false; }
bool saturation_mode() { return overflow_mode < 0 ? soc().saturates : overflow_mode == 0; }

}  // namespace sim_cann

using namespace sim_cann;

SIM_CANN_ENTRY int aclInit(const char*) {
  if (initialised.exchange(true)) return kRepeatedInit;
  catch_host_access();
  return kSuccess;
}
SIM_CANN_ENTRY int aclFinalize() {
  end_all_streams();
  initialised = false;
  return kSuccess;
}
SIM_CANN_ENTRY const char* aclGetRecentErrMsg() {
  given_error = std::exchange(recent_error, {});
  return given_error.empty() ? nullptr : given_error.c_str();
}
SIM_CANN_ENTRY const char* aclrtGetSocName() { return soc().name; }
SIM_CANN_ENTRY int aclrtGetDeviceCount(uint32_t* count) {
  *count = static_cast<uint32_t>(device_count());
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtSetDevice(int32_t device) {
  if (!is_device(device)) return no_such_device(device);
  if (host_call_fails("aclrtSetDevice")) return fail(507899, "EE8888: aclrtSetDevice: the fault of SIM_CANN_FAULT");
  set_current_device(device);
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetDevice(int32_t* device) {
  if (device_of_thread < 0) return fail(107002, "EE1001: this thread has no device yet: aclrtSetDevice");
  *device = device_of_thread;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtResetDevice(int32_t device) { return is_device(device) ? synchronize_device(device) : no_such_device(device); }
SIM_CANN_ENTRY int aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
  if (flags != nullptr) *flags = 0;
  *active = initialised ? 1 : 0;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetCurrentContext(void** context) {
  if (device_of_thread < 0) return fail(107002, "EE1001: this thread has no context yet: aclrtSetDevice");
  *context = &contexts[static_cast<size_t>(device_of_thread)];
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtSetCurrentContext(void* context) {
  const auto* at = static_cast<const char*>(context);
  if (at < contexts.data() || at >= contexts.data() + device_count()) return fail(kInvalidParameter, "EE1001: there is no such context");
  set_current_device(static_cast<int>(at - contexts.data()));
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetRunMode(int* mode) {
  *mode = 1;  // the program runs on the host
  return kSuccess;
}

// `what` is an id of aclGetDeviceCapability; aclrtGetDeviceInfo has ids of its own.
SIM_CANN_ENTRY int aclGetDeviceCapability(uint32_t device, int what, int64_t* value) {
  if (!is_device(device)) return no_such_device(device);
  if (what < 0 || what > 2)
    return fail(kInvalidParameter, "EE1001: aclGetDeviceCapability: sim_cann does not know property " + std::to_string(what));
  *value = what == 0 ? soc().cube_cores : what == 1 ? soc().vector_cores : 192LL << 20;  // property 2: bytes of the L2 cache
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetDeviceInfo(uint32_t device, int what, int64_t* value) {
  if (!is_device(device)) return no_such_device(device);
  switch (what) {
    case 101:
    case 102:
      *value = soc().cube_cores;
      return kSuccess;
    case 201:
      *value = soc().vector_cores;
      return kSuccess;
    case 301:
      *value = static_cast<int64_t>(bytes_in_all(static_cast<int>(device)));
      return kSuccess;
    default:
      return fail(kInvalidParameter, "EE1001: aclrtGetDeviceInfo: sim_cann does not know property " + std::to_string(what));
  }
}
SIM_CANN_ENTRY int aclrtGetResInCurrentThread(int type, uint32_t* value) {
  *value = static_cast<uint32_t>(type == 0 ? soc().cube_cores : soc().vector_cores);
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtDeviceGetUuid(int32_t device, char* uuid) {
  if (!is_device(device)) return no_such_device(device);
  std::memset(uuid, 0, 16);
  std::snprintf(uuid, 16, "sim_cann-%d", device);
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetLogicDevIdByUserDevId(int32_t given, int32_t* logical) {
  *logical = given;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
  *can = 1;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtDeviceEnablePeerAccess(int32_t, uint32_t) { return kSuccess; }

// Mode 0: results saturate; mode 1: they become infinite. A 910B supports both modes, a 910A only mode 0.
SIM_CANN_ENTRY int aclrtSetDeviceSatMode(int mode) {
  if (mode == 1 && soc().saturates) return fail(kInvalidParameter, std::string("EE1001: ") + soc().name + " has no mode with infinities");
  overflow_mode = mode;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetDeviceSatMode(int* mode) {
  *mode = saturation_mode() ? 0 : 1;
  return kSuccess;
}
SIM_CANN_ENTRY int aclGetCannAttributeList(const int** list, size_t* count) {
  static const int known[] = {0};
  *list = known;
  *count = 1;
  return kSuccess;
}
SIM_CANN_ENTRY int aclGetCannAttribute(int what, int32_t* value) {
  if (what != 0) return fail(kInvalidParameter, "EE1001: sim_cann does not know attribute " + std::to_string(what));
  *value = soc().saturates ? 0 : 1;  // whether results can be infinite
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtPeekAtLastError(int) { return kSuccess; }
SIM_CANN_ENTRY int aclrtGetLastError(int) { return kSuccess; }

// Settings without an effect here.
SIM_CANN_ENTRY int aclrtSetOpExecuteTimeOut(uint32_t) { return kSuccess; }
SIM_CANN_ENTRY int aclrtSetOpWaitTimeout(uint32_t) { return kSuccess; }
// Options are stored and can be read. Option 0 (deterministic operators) has no further effect, because the host's operators are
// deterministic.
SIM_CANN_ENTRY int aclrtSetSysParamOpt(int option, int64_t value) {
  if (option < 0 || option >= static_cast<int>(system_options.size())) return fail(kInvalidParameter, "EE1001: there is no such option");
  system_options[static_cast<size_t>(option)] = value;
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtGetSysParamOpt(int option, int64_t* value) {
  if (option < 0 || option >= static_cast<int>(system_options.size())) return fail(kInvalidParameter, "EE1001: there is no such option");
  *value = system_options[static_cast<size_t>(option)];
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtCtxSetSysParamOpt(int option, int64_t value) { return aclrtSetSysParamOpt(option, value); }
SIM_CANN_ENTRY size_t aclGetCompileoptSize(int) { return 16; }
// Returns "disable" for ACL_OP_JIT_COMPILE, because operators are the aclnn functions.
SIM_CANN_ENTRY int aclGetCompileopt(int, char* value, size_t size) {
  std::snprintf(value, size, "disable");
  return kSuccess;
}
SIM_CANN_ENTRY int aclSetCompileopt(int, const char*) { return kSuccess; }
