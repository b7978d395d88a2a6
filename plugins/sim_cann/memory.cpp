// Device memory. Every device has two windows of address space of equal size. The program gets addresses of the first one, which is always
// inaccessible. Operators and copies use the same offset in the second one, in which only allocated pages are accessible. So a host access
// to device memory is a fault on every thread and at any time, and so is an operator's access to freed memory.
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "host_blocks.hpp"
#include "races.hpp"

namespace sim_cann {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMaxDevices = 16;

struct Window {
  std::mutex mutex;
  std::atomic<char*> device{nullptr};  // the window whose addresses the program gets
  char* host = nullptr;
  size_t size = 0, limit = 0, used = 0;
  std::map<size_t, size_t> blocks;  // size of each block by its offset; both are whole pages
};

std::array<Window, kMaxDevices>& windows() {
  static auto* all = new std::array<Window, kMaxDevices>;  // never destroyed: a fault may be reported while the process ends
  return *all;
}

thread_local const char* running = nullptr;

size_t in_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Reads SIM_CANN_HBM, in GiB; decimals are allowed.
size_t memory_limit() {
  static const size_t limit = [] {
    const char* set = std::getenv("SIM_CANN_HBM");
    const double gib = set != nullptr ? std::atof(set) : static_cast<double>(soc().gibibytes);
    if (gib <= 0) {
      std::fprintf(stderr, "sim_cann: SIM_CANN_HBM=%s; allowed: the memory of a device in GiB, above 0\n", set);
      std::_Exit(2);
    }
    return static_cast<size_t>(gib * (1ULL << 30));
  }();
  return limit;
}

char* reserve(size_t bytes) {
  void* out = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return out == MAP_FAILED ? nullptr : static_cast<char*>(out);
}

// Reserves twice the limit, so that an allocation fails because of the limit and not because of fragmentation. Reserves one more page, so
// that the first page stays empty.
bool open_window(Window& w) {
  if (w.host != nullptr) return true;
  w.limit = memory_limit();
  w.size = in_pages(2 * w.limit) + kPage;
  char* device = reserve(w.size);
  w.host = reserve(w.size);
  w.device = device;
  return device != nullptr && w.host != nullptr;
}

// Finds the first gap with space for the bytes and for a page between two blocks.
bool find_gap(const Window& w, size_t bytes, size_t& at) {
  at = kPage;
  for (const auto& [offset, size] : w.blocks) {
    if (at + bytes + kPage <= offset) return true;
    at = offset + size + kPage;
  }
  return at + bytes <= w.size;
}

Window* window_of(const void* address, size_t* offset) {
  const char* p = static_cast<const char*>(address);
  for (auto& w : windows()) {
    const char* start = w.device;
    if (start == nullptr || p < start || p >= start + w.size) continue;
    *offset = static_cast<size_t>(p - start);
    return &w;
  }
  return nullptr;
}

int index_of(const Window* w) { return static_cast<int>(w - windows().data()); }

struct sigaction previous_segv, previous_bus;

void on_fault(int signal, siginfo_t* info, void*) {
  if (races_are_checked() && host_access_is_checked(info->si_addr, running == nullptr)) return;
  char text[400];
  size_t offset = 0;
  int length = 0;
  const char* p = static_cast<const char*>(info->si_addr);
  if (const Window* w = window_of(p, &offset)) {
    length = std::snprintf(text, sizeof text,
                           "sim_cann: the host accessed memory of npu:%d at %p without a copy; copy the tensor to the host first "
                           "(tensor.cpu(), aclrtMemcpy)\n",
                           index_of(w), info->si_addr);
  } else {
    for (auto& other : windows()) {
      if (other.host == nullptr || p < other.host || p >= other.host + other.size) continue;
      length = std::snprintf(text, sizeof text, "sim_cann: %s accessed memory of npu:%d that is not allocated (offset %zu)\n",
                             running != nullptr ? running : "the host", index_of(&other), static_cast<size_t>(p - other.host));
    }
  }
  if (length > 0 && write(STDERR_FILENO, text, static_cast<size_t>(length)) > 0) {
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  }
  sigaction(signal, signal == SIGBUS ? &previous_bus : &previous_segv, nullptr);  // the access is repeated, with the previous handler
}

}  // namespace

void set_running(const char* what) { running = what; }

void catch_host_access() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the code of backtrace() now, not while a fault is handled
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

int allocate(int device, size_t bytes, void** out) {
  Window& w = windows()[static_cast<size_t>(device)];
  const std::lock_guard lock(w.mutex);
  if (!open_window(w)) return fail(kOutOfMemory, "EL0004: the host has no address space for the memory of a device (ulimit -v)");
  const size_t size = in_pages(bytes == 0 ? 1 : bytes);
  size_t at = 0;
  if (size > w.limit - w.used || !find_gap(w, size, at)) {
    return fail(kOutOfMemory, "EL0004: Failed to allocate " + std::to_string(bytes) + " bytes on npu:" + std::to_string(device) + ": " +
                                  std::to_string(w.used) + " of " + std::to_string(w.limit) + " bytes are in use");
  }
  if (mprotect(w.host + at, size, PROT_READ | PROT_WRITE) != 0) {
    return fail(kOutOfMemory, "EL0004: the host has no memory for " + std::to_string(bytes) + " bytes of npu:" + std::to_string(device));
  }
  w.blocks.emplace(at, size);
  w.used += size;
  *out = w.device + at;
  forget(*out, size);
  return kSuccess;
}

int release(void* address) {
  size_t offset = 0;
  Window* w = window_of(address, &offset);
  if (w == nullptr) return fail(kInvalidParameter, "EE1001: aclrtFree: the address is not device memory");
  const std::lock_guard lock(w->mutex);
  const auto block = w->blocks.find(offset);
  if (block == w->blocks.end()) return fail(kInvalidParameter, "EE1001: aclrtFree: no allocation starts at the address");
  madvise(w->host + offset, block->second, MADV_DONTNEED);
  mprotect(w->host + offset, block->second, PROT_NONE);
  w->used -= block->second;
  w->blocks.erase(block);
  return kSuccess;
}

bool is_device_address(const void* address) {
  size_t offset = 0;
  return window_of(address, &offset) != nullptr;
}

int device_of(const void* address) {
  size_t offset = 0;
  const Window* w = window_of(address, &offset);
  return w == nullptr ? -1 : index_of(w);
}

void* host_address(const void* address, size_t bytes) {
  size_t offset = 0;
  Window* w = window_of(address, &offset);
  if (w == nullptr || bytes == 0) return address_for_copies(const_cast<void*>(address));
  const std::lock_guard lock(w->mutex);
  auto block = w->blocks.upper_bound(offset);
  if (block == w->blocks.begin() || (--block, offset + bytes > block->first + block->second)) {
    throw std::runtime_error(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                             " of npu:" + std::to_string(index_of(w)) + " are not allocated, or not all of them");
  }
  return w->host + offset;
}

size_t bytes_in_use(int device) {
  Window& w = windows()[static_cast<size_t>(device)];
  const std::lock_guard lock(w.mutex);
  return w.used;
}

size_t bytes_in_all(int) { return memory_limit(); }

}  // namespace sim_cann
