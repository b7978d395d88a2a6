#include "tools/memory/caching_allocator.hpp"

#include <algorithm>

namespace npu_train::detail {
namespace {

constexpr int64_t kStep = 512, kMiB = int64_t{1} << 20;
constexpr int64_t kSmall = kMiB, kSmallSegment = 2 * kMiB;
constexpr int64_t kMedium = 10 * kMiB, kMediumSegment = 20 * kMiB, kLargeStep = 2 * kMiB;

int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

int64_t CachingAllocatorModel::new_block(Block block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int64_t>(blocks_.size()) - 1;
  }
  const auto at = unused_.back();
  unused_.pop_back();
  blocks_[at] = block;
  return at;
}

void CachingAllocatorModel::release_free_segments() {
  for (auto at = free_.begin(); at != free_.end();) {
    const auto b = std::get<3>(*at);
    if (blocks_[b].before >= 0 || blocks_[b].after >= 0) {
      ++at;
      continue;
    }
    reserved_ -= blocks_[b].bytes;
    unused_.push_back(b);
    at = free_.erase(at);
  }
}

int64_t CachingAllocatorModel::new_segment(int64_t bytes, bool small) {
  const auto size = small ? kSmallSegment : bytes < kMedium ? kMediumSegment : round_up(bytes, kLargeStep);
  if (size > capacity_ - reserved_) release_free_segments();
  if (size > capacity_ - reserved_) return -1;
  reserved_ += size;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return new_block({size, segments_++, -1, -1, false, small});
}

int64_t CachingAllocatorModel::largest_free() const {
  int64_t most = 0;
  for (const auto& key : free_) most = std::max(most, std::get<1>(key));
  return most;
}

int64_t CachingAllocatorModel::take(int64_t requested) {
  const auto bytes = std::max(kStep, round_up(requested, kStep));
  const bool small = bytes <= kSmall;
  int64_t b = -1;
  if (const auto found = free_.lower_bound({small, bytes, -1, -1}); found != free_.end() && std::get<0>(*found) == small) {
    b = std::get<3>(*found);
    free_.erase(found);
  } else {
    b = new_segment(bytes, small);
    if (b < 0) return -1;
  }
  const auto rest = blocks_[b].bytes - bytes;
  if (small ? rest >= kStep : rest > kSmall) {
    const auto right = new_block({rest, blocks_[b].segment, b, blocks_[b].after, false, small});
    if (blocks_[b].after >= 0) blocks_[blocks_[b].after].before = right;
    blocks_[b].after = right;
    blocks_[b].bytes = bytes;
    free_.insert(key_of(right));
  }
  blocks_[b].used = true;
  allocated_ += blocks_[b].bytes;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return b;
}

int64_t CachingAllocatorModel::merge(int64_t left, int64_t right) {
  blocks_[left].bytes += blocks_[right].bytes;
  blocks_[left].after = blocks_[right].after;
  if (blocks_[left].after >= 0) blocks_[blocks_[left].after].before = left;
  unused_.push_back(right);
  return left;
}

void CachingAllocatorModel::give_back(int64_t b) {
  allocated_ -= blocks_[b].bytes;
  blocks_[b].used = false;
  if (const auto right = blocks_[b].after; right >= 0 && !blocks_[right].used) {
    free_.erase(key_of(right));
    b = merge(b, right);
  }
  if (const auto left = blocks_[b].before; left >= 0 && !blocks_[left].used) {
    free_.erase(key_of(left));
    b = merge(left, b);
  }
  free_.insert(key_of(b));
}

}  // namespace npu_train::detail
