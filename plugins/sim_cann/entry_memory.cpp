// Memory and copies of AscendCL.
#include <cstring>
#include <stdexcept>

#include "acl.hpp"
#include "graphs.hpp"
#include "host_blocks.hpp"
#include "races.hpp"

using namespace sim_cann;

namespace {

// Whether an asynchronous copy of this memory may return before it ends. Host memory that is not page-locked does not allow this.
bool may_wait(const void* address) { return is_device_address(address) || is_page_locked(address); }

constexpr const char* kKinds[] = {"host to host", "host to device", "device to host", "device to device"};

int check_copy(const char* function, const void* to, size_t room, const void* from, size_t bytes, int kind) {
  const std::string name = std::string("EE1001: ") + function + ": ";
  if (bytes > room) return fail(kInvalidParameter, name + std::to_string(bytes) + " bytes do not fit into " + std::to_string(room));
  if (kind < 0 || kind > 3 || bytes == 0) return kSuccess;  // the addresses determine the direction of other kinds
  const bool from_device = is_device_address(from), to_device = is_device_address(to);
  if (from_device == (kind >= 2) && to_device == (kind % 2 == 1)) return kSuccess;
  const int is = (from_device ? 2 : 0) + (to_device ? 1 : 0);
  return fail(kInvalidParameter, name + "called as a copy from " + kKinds[kind] + ", but the addresses are " + kKinds[is]);
}

void copy_now(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memmove(host_address(to, bytes), host_address(from, bytes), bytes);
}

Accesses accesses_of_copy(void* to, const void* from, size_t bytes) {
  Accesses out;
  if (!races_are_checked() || bytes == 0) return out;
  if (from != nullptr && may_wait(from)) out.push_back({.start = from, .width = bytes});
  if (may_wait(to)) out.push_back({.start = to, .width = bytes, .writes = true});
  return out;
}
Accesses accesses_of_set(void* to, size_t bytes) { return accesses_of_copy(to, nullptr, bytes); }

template <class Fn>
int at_once(const char* function, const Fn& run) {
  try {
    run();
    return kSuccess;
  } catch (const std::exception& e) {
    return fail(kInvalidParameter, std::string("EE1001: ") + function + ": " + e.what());
  }
}

int copy_in_stream(const char* function, void* to, size_t room, const void* from, size_t bytes, int kind, void* stream) {
  const int code = check_copy(function, to, room, from, bytes, kind);
  if (code != kSuccess) return code;
  const bool is_async = may_wait(to) && may_wait(from);
  if (!is_async) {  // CANN synchronises the stream and copies synchronously instead
    if (const int refused = check_stream_call(function, stream); refused != kSuccess) return refused;
    if (const int refused = check_unsafe_call(function, kCaptureForbidsAsync); refused != kSuccess) return refused;
  }
  const auto copy = [=, replayed = is_captured(stream)] {
    if (replayed && !(may_wait(to) && may_wait(from))) throw std::runtime_error("page-locked memory of a captured copy was freed");
    copy_now(to, from, bytes);
  };
  enqueue(stream, function, copy, accesses_of_copy(to, from, bytes));
  return is_async ? int{kSuccess} : synchronize(stream);
}

}  // namespace

SIM_CANN_ENTRY int aclrtMalloc(void** out, size_t bytes, int) { return allocate(current_device(), bytes, out); }
SIM_CANN_ENTRY int aclrtMallocAlign32(void** out, size_t bytes, int) { return allocate(current_device(), bytes, out); }
SIM_CANN_ENTRY int aclrtFree(void* address) {
  synchronize_device(device_of(address) < 0 ? current_device() : device_of(address));  // as with CANN, no task may still use the memory
  return release(address);
}
SIM_CANN_ENTRY int aclrtGetMemInfo(int, size_t* unused, size_t* total) {
  *total = bytes_in_all(current_device());
  *unused = *total - bytes_in_use(current_device());
  return kSuccess;
}
SIM_CANN_ENTRY int aclrtMallocHost(void** out, size_t bytes) { return allocate_on_host(bytes, out); }
SIM_CANN_ENTRY int aclrtFreeHost(void* address) { return release_on_host(address); }
SIM_CANN_ENTRY int aclrtPointerGetAttributes(const void* address, uint32_t* out) {
  std::memset(out, 0, 7 * sizeof *out);  // the device, the kind of memory, the page size, and four reserved numbers
  const bool on_device = is_device_address(address);
  out[0] = static_cast<uint32_t>(on_device ? device_of(address) : 0);
  out[1] = on_device ? 1 : is_page_locked(address) ? 0 : 2;  // kinds of memory: 0 host, 1 device, 2 unregistered
  out[2] = 4096;
  return kSuccess;
}

SIM_CANN_ENTRY int aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, int kind) {
  const int code = check_copy("aclrtMemcpy", to, room, from, bytes, kind);
  if (code != kSuccess) return code;
  if (const int refused = check_unsafe_call("aclrtMemcpy"); refused != kSuccess) return refused;
  check_host("aclrtMemcpy", accesses_of_copy(to, from, bytes));
  return at_once("aclrtMemcpy", [&] { copy_now(to, from, bytes); });
}
SIM_CANN_ENTRY int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int kind, void* stream) {
  return copy_in_stream("aclrtMemcpyAsync", to, room, from, bytes, kind, stream);
}
SIM_CANN_ENTRY int aclrtMemcpyAsyncWithCondition(void* to, size_t room, const void* from, size_t bytes, int kind, void* stream) {
  return copy_in_stream("aclrtMemcpyAsyncWithCondition", to, room, from, bytes, kind, stream);
}
SIM_CANN_ENTRY int aclrtMemset(void* to, size_t room, int32_t value, size_t bytes) {
  if (bytes > room) return fail(kInvalidParameter, "EE1001: aclrtMemset: more bytes than room");
  if (const int refused = check_unsafe_call("aclrtMemset"); refused != kSuccess) return refused;
  check_host("aclrtMemset", accesses_of_set(to, bytes));
  return at_once("aclrtMemset", [&] { std::memset(host_address(to, bytes), value, bytes); });
}
SIM_CANN_ENTRY int aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t bytes, void* stream) {
  if (bytes > room) return fail(kInvalidParameter, "EE1001: aclrtMemsetAsync: more bytes than room");
  enqueue(
      stream, "aclrtMemsetAsync", [=] { std::memset(host_address(to, bytes), value, bytes); }, accesses_of_set(to, bytes));
  return kSuccess;
}
