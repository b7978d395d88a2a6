// Page-locked host memory. If races are checked, every block has two mappings: one for the program, in which pages with an unfinished copy
// are inaccessible, and one for the copies.
#pragma once

#include <functional>
#include <string>

#include "runtime.hpp"

namespace sim_cann {

int allocate_on_host(size_t bytes, void** out);
int release_on_host(void* address);
bool is_page_locked(const void* address);
/// Returns the address through which copies access the bytes of a program's address.
void* address_for_copies(void* address);

/// A copy that may not have ended, as far as the host knows.
struct Pending {
  const void* start;
  size_t bytes;
  bool writes;
  int stream;
  uint64_t number;
  std::string what;
};
/// Protects the copy's bytes if they are in a block.
void add_pending(Pending pending);
/// Opens the pages of the copies for which `is_over` is true.
void drop_pending(const std::function<bool(const Pending&)>& is_over);
/// Opens the block of an address. Returns false if it is in no block. `what`: the copy that uses the address, or "".
bool open_block(const void* address, std::string& what);

}  // namespace sim_cann
