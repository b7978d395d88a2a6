// Allocates blocks of one range of address space by best fit, and merges adjacent gaps. Not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace npu_train::detail {

class ArenaHeap {
 public:
  static constexpr size_t kAlignment = 4096;

  // Manages [base, base + size) without touching its pages.
  ArenaHeap(char* base, size_t size);

  // Returns null if no gap is large enough.
  void* allocate(size_t bytes);
  // `p` must be a live block.
  void release(void* p);
  bool owns(const void* p) const { return p >= base_ && p < base_ + size_; }

  size_t in_use() const { return in_use_; }
  size_t high_water() const { return high_water_; }
  // Calls fn(begin, bytes) for each gap below high_water().
  template <class Fn>
  void for_each_gap(Fn fn) const {
    for (const auto& [offset, bytes] : gaps_) {
      if (offset < high_water_) fn(base_ + offset, (offset + bytes < high_water_ ? offset + bytes : high_water_) - offset);
    }
  }

 private:
  void add_gap(size_t offset, size_t bytes);
  void remove_gap(std::map<size_t, size_t>::iterator gap);

  char* base_;
  size_t size_;
  std::map<size_t, size_t> gaps_;                // offset -> bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // (bytes, offset) of the gaps
  std::unordered_map<size_t, size_t> live_;      // offset -> bytes
  size_t in_use_ = 0, high_water_ = 0;
};

}  // namespace npu_train::detail
