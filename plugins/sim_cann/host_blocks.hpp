// Page-locked memory of the host. If races are checked, every block has two mappings: the program's, of which pages with an unfinished copy
// are inaccessible, and one that the copies use.
#pragma once

#include <functional>
#include <string>

#include "runtime.hpp"

namespace sim_cann {

int allocate_on_host(size_t bytes, void** out);
int release_on_host(void* address);
bool is_page_locked(const void* address);
/// Where copies find the bytes of an address of the program.
void* address_for_copies(void* address);

/// A copy whose end the host does not know.
struct Pending {
  const void* start;
  size_t bytes;
  bool writes;
  int stream;
  uint64_t number;
  std::string what;
};
/// Protects its bytes if they are in a block.
void add_pending(Pending pending);
/// Opens the pages of those for which `is_over` is true.
void drop_pending(const std::function<bool(const Pending&)>& is_over);
/// False if the address is in no block. Otherwise the block is accessible, and `what` is the copy of the address, or empty.
bool open_block(const void* address, std::string& what);

}  // namespace sim_cann
