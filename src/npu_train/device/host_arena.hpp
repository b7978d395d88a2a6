/// Reuses host memory for large tensors.
///
/// For each tensor of some hundred kilobytes, the C library requests new pages from the system, and returns them when the tensor is freed.
/// A training step allocates gigabytes in this way, and the system must find, clear and map all pages again: this takes 10 to 20 % of a
/// step of a convolutional network on the CPU. The arena reserves address space once (in huge pages if available) and places each block in
/// the smallest sufficient gap. For ResNet-50 it needs about 2 % more than the peak of live tensors; the C library's heap, configured to
/// keep its memory, needs 15 % more.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <string>

namespace npu_train {

struct HostArenaStats {
  size_t in_use = 0;      ///< bytes of live blocks
  size_t high_water = 0;  ///< end of the highest block ever used: the arena's share of the resident memory
  size_t reserved = 0;    ///< address space; 0 if the system refused it (limits, strict overcommit): then the arena is not used
};

/// In its scope, CPU tensors of at least 64 KiB come from the arena, in all threads. Smaller ones, and those that do not fit, come from the
/// previous allocator, which the destructor restores. Meant for the main function of a program; libraries that do not own the process
/// should not use it. Scopes nest. Blocks may outlive the scope; the process keeps freed memory until `trim`.
class HostArena {
 public:
  HostArena();
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  static HostArenaStats stats();
  /// Returns the pages of all gaps to the system.
  static void trim();

 private:
  c10::Allocator* before_;
};

/// Returns an arena for the main function of a program if the environment variable NPU_TRAIN_ALLOCATOR is unset or `arena`, and null if it
/// is `system`. Without an arena, every tensor comes from the C library, or from the library that LD_PRELOAD puts in its place (mimalloc,
/// jemalloc). Error(Usage) for another value.
std::unique_ptr<HostArena> host_arena_from_environment();

/// Returns the current allocator of CPU memory: "arena, glibc 2.36" (large tensors from the arena, the rest from the C library), "mimalloc
/// 2.0.9", "jemalloc 5.3.0".
std::string host_allocator();

}  // namespace npu_train
