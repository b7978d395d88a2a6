#include "npu_train/device/host_blocks.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <mutex>
#include <unordered_map>

namespace npu_train {
namespace {

constexpr uint8_t kPriorityOfReports = 100;  // equal to the arena's priority, so that the allocator installed last is used

HostBlockWatcher* watcher() { return dynamic_cast<HostBlockWatcher*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE)); }

// The reporting allocator: one per process, never destroyed, because tensors may be freed after main().
class ReportingAllocator final : public c10::Allocator {
 public:
  static ReportingAllocator& instance() {
    static auto* one = new ReportingAllocator;
    return *one;
  }

  c10::DataPtr allocate(size_t bytes) override {
    auto* told = watcher();
    if (told == nullptr || bytes == 0) return under_->allocate(bytes);
    c10::DataPtr block;
    try {
      block = under_->allocate(bytes);
    } catch (...) {
      told->reportOutOfMemory(static_cast<int64_t>(bytes), in_use(), 0, c10::kCPU);
      throw;
    }
    void* p = block.get();
    if (p == nullptr || block.get_context() != p) return block;  // its release could not be observed
    size_t used = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_[p] = {bytes, block.get_deleter()};
      used = in_use_ += bytes;
    }
    block.release_context();
    told->reportMemoryUsage(p, static_cast<int64_t>(bytes), used, 0, c10::kCPU);
    return {p, p, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void install() {
    const std::lock_guard<std::mutex> lock(users_mutex_);
    if (users_++ > 0) return;
    if (auto* now = c10::GetCPUAllocator(); now != this) under_ = now;
    c10::SetCPUAllocator(this, kPriorityOfReports);
  }
  void remove() {
    const std::lock_guard<std::mutex> lock(users_mutex_);
    if (--users_ == 0 && c10::GetCPUAllocator() == this) c10::SetCPUAllocator(under_, kPriorityOfReports);
  }

 private:
  struct Block {
    size_t bytes = 0;
    c10::DeleterFnPtr deleter = nullptr;
  };

  size_t in_use() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return in_use_;
  }
  // Frees a reported block, or a block of raw_allocate, which has no deleter of its own.
  static void release(void* p) {
    auto& own = instance();
    Block block;
    size_t used = 0;
    {
      const std::lock_guard<std::mutex> lock(own.mutex_);
      if (const auto found = own.blocks_.find(p); found != own.blocks_.end()) {
        block = found->second;
        own.blocks_.erase(found);
        used = own.in_use_ -= block.bytes;
      }
    }
    if (block.deleter == nullptr) return own.under_->raw_deleter()(p);
    if (auto* told = watcher()) told->reportMemoryUsage(p, -static_cast<int64_t>(block.bytes), used, 0, c10::kCPU);
    block.deleter(p);
  }

  c10::Allocator* under_ = c10::GetCPUAllocator();
  std::mutex users_mutex_;
  int users_ = 0;
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  size_t in_use_ = 0;
};

}  // namespace

HostBlocks::HostBlocks() { ReportingAllocator::instance().install(); }
HostBlocks::~HostBlocks() { ReportingAllocator::instance().remove(); }

}  // namespace npu_train
