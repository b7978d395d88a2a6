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

/// A copy that may still run: the host does not know yet that it has ended.
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
/// Removes the copies for which `is_over` returns true, and makes their pages accessible unless other copies still use them.
void drop_pending(const std::function<bool(const Pending&)>& is_over);
/// Makes the complete block that contains `address` accessible. Returns false if there is no such block. Sets `what` to the description of
/// a pending copy that uses the address, if there is one.
bool open_block(const void* address, std::string& what);

}  // namespace sim_cann
