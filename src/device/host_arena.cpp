#include "npu_train/device/host_arena.hpp"

#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "device/arena_heap.hpp"
#include "npu_train/core/c_library.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr size_t kLeast = 64 << 10;  // smaller blocks stay with the C library, which caches them itself
constexpr size_t kHugePage = 2UL << 20;
constexpr uint8_t kPriority = 100;  // higher than that of the default allocators

// Reserves as much address space as the machine has memory; pages are allocated when they are touched.
std::pair<char*, size_t> reserve() {
  const size_t size = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) / kHugePage * kHugePage;
  if (size == 0) return {nullptr, 0};
  void* p = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return {nullptr, 0};
  const auto at = (reinterpret_cast<uintptr_t>(p) + kHugePage - 1) / kHugePage * kHugePage;
  ::madvise(reinterpret_cast<void*>(at), size, MADV_HUGEPAGE);  // only advice; without huge pages the arena is slower
  return {reinterpret_cast<char*>(at), size};
}

// The allocator of the arena: one per process, never destroyed, because tensors may be freed after main().
class ArenaAllocator final : public c10::Allocator {
 public:
  static ArenaAllocator& instance() {
    static auto* one = new ArenaAllocator;
    return *one;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes >= kLeast) {
      void* p = nullptr;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        p = heap_.allocate(bytes);
      }
      if (p) {
        c10::profiledCPUMemoryReporter().New(p, bytes);
        return {p, p, &ArenaAllocator::release, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return under_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &ArenaAllocator::release_any; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  HostArenaStats stats() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {heap_.in_use(), heap_.high_water(), size_};
  }
  void trim() {
    const std::lock_guard<std::mutex> lock(mutex_);
    heap_.for_each_gap([](char* p, size_t bytes) { ::madvise(p, bytes, MADV_DONTNEED); });
  }

 private:
  explicit ArenaAllocator(std::pair<char*, size_t> space) : size_(space.second), heap_(space.first, space.second) {}
  ArenaAllocator() : ArenaAllocator(reserve()) {
    // Holds the mutex during a fork: in the child only the forking thread exists, and a mutex held by another thread would stay locked
    // there.
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().mutex_.unlock(); });
  }

  static void release(void* p) {
    auto& own = instance();
    c10::profiledCPUMemoryReporter().Delete(p);
    const std::lock_guard<std::mutex> lock(own.mutex_);
    own.heap_.release(p);
  }
  // Frees a block of raw_allocate, which has no deleter of its own.
  static void release_any(void* p) {
    auto& own = instance();
    if (own.heap_.owns(p))
      release(p);
    else
      own.under_->raw_deleter()(p);
  }

  c10::Allocator* under_ = c10::GetCPUAllocator();
  size_t size_;
  std::mutex mutex_;
  detail::ArenaHeap heap_;
};

template <typename Function>
Function* loaded(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// Returns the name of the library that implements malloc(). Replacements are recognised by the functions that they export.
std::string c_library_allocator() {
  if (auto* version = loaded<int()>("mi_version")) {
    const int v = version();  // 209 means 2.0.9
    return str_cat("mimalloc ", v / 100, ".", v / 10 % 10, ".", v % 10);
  }
  if (auto* control = loaded<int(const char*, void*, size_t*, void*, size_t)>("mallctl")) {
    const char* version = "";
    size_t size = sizeof version;
    if (control("version", &version, &size, nullptr, 0) != 0) return "jemalloc";
    const std::string text = version;  // for example 5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c
    return "jemalloc " + text.substr(0, text.find('-'));
  }
  return c_library();
}

}  // namespace

HostArena::HostArena() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(&ArenaAllocator::instance(), kPriority); }

HostArena::~HostArena() { c10::SetCPUAllocator(before_, kPriority); }

HostArenaStats HostArena::stats() { return ArenaAllocator::instance().stats(); }

void HostArena::trim() { ArenaAllocator::instance().trim(); }

std::unique_ptr<HostArena> host_arena_from_environment() {
  constexpr const char* kVariable = "NPU_TRAIN_ALLOCATOR";
  const char* set = std::getenv(kVariable);
  const std::string wanted = set == nullptr || *set == '\0' ? "arena" : set;
  check(wanted == "arena" || wanted == "system", ErrorKind::Usage, kVariable, "'", wanted, "'; allowed: arena, system");
  return wanted == "arena" ? std::make_unique<HostArena>() : nullptr;
}

std::string host_allocator() {
  const bool arena = c10::GetCPUAllocator() == &ArenaAllocator::instance();
  return (arena ? "arena, " : "") + c_library_allocator();
}

}  // namespace npu_train
