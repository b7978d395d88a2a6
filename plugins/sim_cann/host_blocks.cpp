#include "host_blocks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "races.hpp"

namespace sim_cann {
namespace {

constexpr uintptr_t kPage = 4096;

struct Block {
  size_t bytes = 0;
  char* copies = nullptr;  // the second mapping; nullptr if races are not checked
  std::vector<Pending> pending{};
};

struct Blocks {
  std::mutex mutex;
  std::map<char*, Block> all;
};
Blocks& blocks() {
  static auto* all = new Blocks;
  return *all;
}

size_t in_pages(size_t bytes) { return (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

std::pair<char* const, Block>* block_of(Blocks& b, const void* address) {
  char* p = static_cast<char*>(const_cast<void*>(address));
  auto place = b.all.upper_bound(p);
  return place != b.all.begin() && (--place, p < place->first + place->second.bytes) ? &*place : nullptr;
}

void protect(const std::pair<char* const, Block>& block) {
  mprotect(block.first, in_pages(block.second.bytes), PROT_READ | PROT_WRITE);
  for (const bool writes : {false, true}) {
    for (const Pending& p : block.second.pending) {
      if (p.writes != writes) continue;
      const auto start = reinterpret_cast<uintptr_t>(p.start), begin = start / kPage * kPage;
      mprotect(reinterpret_cast<void*>(begin), in_pages(start + p.bytes - begin), writes ? PROT_NONE : PROT_READ);  // NOLINT
    }
  }
}

bool map_twice(size_t bytes, void** program, char** copies) {
  const int file = memfd_create("sim_cann", MFD_CLOEXEC);
  if (file < 0) return false;
  const auto map = [&] {
    void* out = mmap(nullptr, in_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return out == MAP_FAILED ? nullptr : out;
  };
  const bool sized = ftruncate(file, static_cast<off_t>(in_pages(bytes))) == 0;
  *program = sized ? map() : nullptr;
  *copies = sized ? static_cast<char*>(map()) : nullptr;
  close(file);
  return *program != nullptr && *copies != nullptr;
}

}  // namespace

int allocate_on_host(size_t bytes, void** out) {
  Block block{.bytes = bytes};
  if (!(races_are_checked() ? map_twice(bytes, out, &block.copies) : posix_memalign(out, kPage, std::max<size_t>(bytes, 1)) == 0))
    return fail(kOutOfMemory, "EL0004: the host has no " + std::to_string(bytes) + " bytes");
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  b.all[static_cast<char*>(*out)] = std::move(block);
  return kSuccess;
}

int release_on_host(void* address) {
  Blocks& b = blocks();
  Block block;
  {
    const std::lock_guard lock(b.mutex);
    const auto place = b.all.find(static_cast<char*>(address));
    if (place == b.all.end()) return fail(kInvalidParameter, "EE1001: aclrtFreeHost: no such block");
    block = std::move(place->second);
    b.all.erase(place);
  }
  if (block.copies == nullptr) {
    std::free(address);
    return kSuccess;
  }
  check_host("aclrtFreeHost", {{address, block.bytes, {}, {}, true, "the block"}});
  munmap(address, in_pages(block.bytes));
  munmap(block.copies, in_pages(block.bytes));
  return kSuccess;
}

bool is_page_locked(const void* address) {
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  return block_of(b, address) != nullptr;
}

void* address_for_copies(void* address) {
  if (!races_are_checked()) return address;
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  const auto* block = block_of(b, address);
  return block == nullptr ? address : block->second.copies + (static_cast<char*>(address) - block->first);
}

void add_pending(Pending pending) {
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  auto* block = block_of(b, pending.start);
  if (block == nullptr || pending.bytes == 0) return;
  block->second.pending.push_back(std::move(pending));
  protect(*block);
}

void drop_pending(const std::function<bool(const Pending&)>& is_over) {
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  for (auto& block : b.all) {
    if (std::erase_if(block.second.pending, is_over) > 0) protect(block);
  }
}

bool open_block(const void* address, std::string& what) {
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  const auto* block = block_of(b, address);
  if (block == nullptr) return false;
  for (const Pending& p : block->second.pending) {
    const auto* start = static_cast<const char*>(p.start);
    if (address >= start && address < start + p.bytes) what = p.what;
  }
  mprotect(block->first, in_pages(block->second.bytes), PROT_READ | PROT_WRITE);
  return true;
}

}  // namespace sim_cann
