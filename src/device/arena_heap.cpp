#include "device/arena_heap.hpp"

#include <algorithm>
#include <iterator>

namespace npu_train::detail {

ArenaHeap::ArenaHeap(char* base, size_t size) : base_(base), size_(size) {
  if (size_ > 0) add_gap(0, size_);
}

void ArenaHeap::add_gap(size_t offset, size_t bytes) {
  gaps_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void ArenaHeap::remove_gap(std::map<size_t, size_t>::iterator gap) {
  by_size_.erase({gap->second, gap->first});
  gaps_.erase(gap);
}

void* ArenaHeap::allocate(size_t bytes) {
  if (bytes == 0 || bytes > size_) return nullptr;
  const size_t need = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto fit = by_size_.lower_bound({need, 0});  // smallest sufficient gap; lowest address among equals
  if (fit == by_size_.end()) return nullptr;
  const auto [have, offset] = *fit;
  remove_gap(gaps_.find(offset));
  if (have > need) add_gap(offset + need, have - need);
  live_.emplace(offset, need);
  in_use_ += need;
  high_water_ = std::max(high_water_, offset + need);
  return base_ + offset;
}

void ArenaHeap::release(void* p) {
  const auto block = live_.find(static_cast<size_t>(static_cast<char*>(p) - base_));
  if (block == live_.end()) return;
  size_t offset = block->first, bytes = block->second;
  live_.erase(block);
  in_use_ -= bytes;
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      remove_gap(before);
    }
  }
  if (after != gaps_.end() && after->first == offset + bytes) {
    bytes += after->second;
    remove_gap(after);
  }
  add_gap(offset, bytes);
}

}  // namespace npu_train::detail
