/// Host memory for large tensors that is kept and used again.
///
/// The C library gives each tensor of some hundred kilobytes fresh pages from the system and returns them when it is freed. A training
/// step allocates gigabytes so, and the system finds, clears and maps every page again: a tenth to a fifth of the time of a convolutional
/// network's step on the CPU. The arena takes address space once, in huge pages where the system has them, and fits each block into the
/// smallest gap (about 2 % above the peak of live tensors for ResNet-50; a heap of the C library set to keep its memory takes 15 %).
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <string>

namespace npu_train {

struct HostArenaStats {
  size_t in_use = 0;      ///< bytes of live blocks
  size_t high_water = 0;  ///< bytes from the first to the last that was ever used: what the arena adds to the resident memory
  size_t reserved = 0;    ///< address space; 0 where the system gave none (limits, strict overcommit), and nothing goes through the arena
};

/// While one lives, tensors of the CPU of at least 64 KiB come from the arena, in all threads; smaller ones and what does not fit come
/// from the previous allocator, which is restored at the end. Meant for the main function of a program; a library that does not own the
/// process should not use it. Scopes nest. Blocks may outlive the scope; freed memory stays with the process until `trim`.
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

/// An arena for the main function of a program, unless the environment variable NPU_TRAIN_ALLOCATOR is `system` (`arena` or unset: one).
/// Without an arena every tensor comes from the C library, or from what LD_PRELOAD put into its place: mimalloc, jemalloc.
/// Error(Usage) for another value.
std::unique_ptr<HostArena> host_arena_from_environment();

/// Where the CPU's memory comes from now: "arena, glibc 2.36" (large tensors from the arena, what is small from the C library),
/// "mimalloc 2.0.9", "jemalloc 5.3.0".
std::string host_allocator();

}  // namespace npu_train
