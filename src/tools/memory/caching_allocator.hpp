// Simulates the segments that a caching allocator takes from the device for a sequence of requests. The model is libtorch's allocator for
// CUDA (c10/cuda/CUDACachingAllocator.cpp), which torch_npu's allocator follows. Sizes are multiples of 512 bytes. Requests up to 1 MiB use
// segments of 2 MiB, and requests below 10 MiB use segments of 20 MiB. Larger requests get a segment of their own, whose size is a multiple
// of 2 MiB. The smallest sufficient free block is taken and split. If the device is full, unused segments are freed first.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <set>
#include <tuple>
#include <vector>

namespace npu_train::detail {

class CachingAllocatorModel {
 public:
  explicit CachingAllocatorModel(int64_t capacity = std::numeric_limits<int64_t>::max()) : capacity_(capacity) {}

  // Returns a handle; -1 if the request does not fit.
  int64_t take(int64_t bytes);
  void give_back(int64_t handle);

  int64_t allocated() const { return allocated_; }  // bytes of complete blocks, including their padding
  int64_t reserved() const { return reserved_; }
  int64_t largest_free() const;  // bytes of the largest free block
  int64_t peak_allocated() const { return peak_allocated_; }
  int64_t peak_reserved() const { return peak_reserved_; }
  void reset_peak() { peak_allocated_ = allocated_, peak_reserved_ = reserved_; }

 private:
  struct Block {
    int64_t bytes;
    int64_t segment;
    int64_t before, after;  // neighbours in the segment; -1: none
    bool used;
    bool small;
  };
  using FreeKey = std::tuple<bool, int64_t, int64_t, int64_t>;  // small, bytes, segment, block

  FreeKey key_of(int64_t b) const { return {blocks_[b].small, blocks_[b].bytes, blocks_[b].segment, b}; }
  int64_t new_block(Block block);
  int64_t new_segment(int64_t bytes, bool small);
  void release_free_segments();
  int64_t merge(int64_t left, int64_t right);

  int64_t capacity_;
  std::vector<Block> blocks_;
  std::vector<int64_t> unused_;  // free indices of blocks_
  std::set<FreeKey> free_;
  int64_t segments_ = 0;
  int64_t allocated_ = 0, reserved_ = 0, peak_allocated_ = 0, peak_reserved_ = 0;
};

}  // namespace npu_train::detail
