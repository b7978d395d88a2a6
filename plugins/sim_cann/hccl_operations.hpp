// Collectives on host memory, which streams run.
#pragma once

#include <string>
#include <vector>

#include "hccl.hpp"

namespace sim_cann {

enum class Reduction : int { Sum, Product, Largest, Smallest };

/// A dtype of HCCL: its name, the bytes of an element, and whether it can be reduced.
struct DataType {
  const char* name;
  size_t bytes;
  void (*reduce)(void* into, const void* other, size_t count, Reduction how);  // nullptr: elements can only be moved
};
/// Returns nullptr if HCCL has no dtype with this number.
const DataType* data_type(int number);

/// A part of a buffer, in bytes.
struct Range {
  size_t begin = 0, bytes = 0;
};

/// Every rank sends its range `to[r]` to rank r and receives into `from[r]`.
void exchange_all(Communicator& comm, const std::string& what, uint64_t number, char* in, const std::vector<Range>& to, char* out,
                  const std::vector<Range>& from, uint32_t step = 0);
/// Reduces the range parts[r] of all ranks' `in` to `out` of rank r, in the order of the ranks.
void reduce_scatter(Communicator& comm, const std::string& what, uint64_t number, char* in, const std::vector<Range>& parts, char* out,
                    const DataType& type, Reduction how);
void all_reduce(Communicator& comm, const std::string& what, uint64_t number, char* in, char* out, size_t count, const DataType& type,
                Reduction how);
void reduce(Communicator& comm, const std::string& what, uint64_t number, char* in, char* out, size_t count, const DataType& type,
            Reduction how, int root);
void broadcast(Communicator& comm, const std::string& what, uint64_t number, char* data, size_t bytes, int root);

/// Returns a part of equal size for each rank.
std::vector<Range> equal_parts(int ranks, size_t bytes);
/// Returns `range` for rank `of`, and empty parts for the other ranks.
std::vector<Range> part_of(int ranks, int of, Range range);

}  // namespace sim_cann
