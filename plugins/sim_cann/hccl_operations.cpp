#include "hccl_operations.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sim_cann {
namespace {

template <class T>
T combine(T a, T b, Reduction how) {
  switch (how) {
    case Reduction::Sum:
      return static_cast<T>(a + b);
    case Reduction::Product:
      return static_cast<T>(a * b);
    case Reduction::Largest:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

template <class T>
void reduce_elements(void* into, const void* other, size_t count, Reduction how) {
  auto* a = static_cast<T*>(into);
  const auto* b = static_cast<const T*>(other);
  for (size_t i = 0; i < count; ++i) a[i] = combine(a[i], b[i], how);
}

// Indexed by HCCL's number of a dtype.
const std::array<DataType, 12> kTypes = {{{"int8", 1, reduce_elements<int8_t>},
                                          {"int16", 2, reduce_elements<int16_t>},
                                          {"int32", 4, reduce_elements<int32_t>},
                                          {"float16", 2, reduce_elements<c10::Half>},
                                          {"float32", 4, reduce_elements<float>},
                                          {"int64", 8, reduce_elements<int64_t>},
                                          {"uint64", 8, nullptr},
                                          {"uint8", 1, nullptr},
                                          {"uint16", 2, nullptr},
                                          {"uint32", 4, nullptr},
                                          {"float64", 8, nullptr},
                                          {"bfloat16", 2, reduce_elements<c10::BFloat16>}}};

size_t at(int rank) { return static_cast<size_t>(rank); }

void copy(char* to, const char* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace

const DataType* data_type(int number) { return number >= 0 && at(number) < kTypes.size() ? &kTypes[at(number)] : nullptr; }

std::vector<Range> equal_parts(int ranks, size_t bytes) {
  std::vector<Range> out;
  for (int r = 0; r < ranks; ++r) out.push_back({at(r) * bytes, bytes});
  return out;
}

std::vector<Range> part_of(int ranks, int of, Range range) {
  std::vector<Range> out(at(ranks));
  out[at(of)] = range;
  return out;
}

void exchange_all(Communicator& comm, const std::string& what, uint64_t number, char* in, const std::vector<Range>& to, char* out,
                  const std::vector<Range>& from, uint32_t step) {
  std::vector<Message> sends, receives;
  const Tag tag{number, step, false};
  for (int r = 0; r < comm.size; ++r) {
    if (to[at(r)].bytes != 0) sends.push_back({r, tag, in + to[at(r)].begin, to[at(r)].bytes});
    if (from[at(r)].bytes != 0) receives.push_back({r, tag, out + from[at(r)].begin, from[at(r)].bytes});
  }
  const Range own_in = to[at(comm.rank)], own_out = from[at(comm.rank)];
  copy(out + own_out.begin, in + own_in.begin, std::min(own_in.bytes, own_out.bytes));
  comm.exchange(what, sends, receives);
}

void reduce_scatter(Communicator& comm, const std::string& what, uint64_t number, char* in, const std::vector<Range>& parts, char* out,
                    const DataType& type, Reduction how) {
  const size_t bytes = parts[at(comm.rank)].bytes;
  std::vector<char> room(bytes * at(comm.size));
  exchange_all(comm, what, number, in, parts, room.data(), equal_parts(comm.size, bytes));
  for (int r = 1; r < comm.size; ++r) type.reduce(room.data(), room.data() + at(r) * bytes, bytes / type.bytes, how);
  copy(out, room.data(), bytes);
}

void all_reduce(Communicator& comm, const std::string& what, uint64_t number, char* in, char* out, size_t count, const DataType& type,
                Reduction how) {
  std::vector<Range> parts;
  const size_t ranks = at(comm.size);
  for (size_t r = 0; r < ranks; ++r) {
    const size_t begin = count * r / ranks, end = count * (r + 1) / ranks;
    parts.push_back({begin * type.bytes, (end - begin) * type.bytes});
  }
  const Range own = parts[at(comm.rank)];
  reduce_scatter(comm, what, number, in, parts, out + own.begin, type, how);
  exchange_all(comm, what, number, out, std::vector<Range>(ranks, own), out, parts, 1);
}

void reduce(Communicator& comm, const std::string& what, uint64_t number, char* in, char* out, size_t count, const DataType& type,
            Reduction how, int root) {
  const size_t bytes = count * type.bytes;
  const bool is_root = comm.rank == root;
  std::vector<char> room(is_root ? bytes * at(comm.size) : 0);
  exchange_all(comm, what, number, in, part_of(comm.size, root, {0, bytes}), room.data(), equal_parts(comm.size, is_root ? bytes : 0));
  if (!is_root) return;
  for (int r = 1; r < comm.size; ++r) type.reduce(room.data(), room.data() + at(r) * bytes, count, how);
  copy(out, room.data(), bytes);
}

void broadcast(Communicator& comm, const std::string& what, uint64_t number, char* data, size_t bytes, int root) {
  const std::vector<Range> to(at(comm.size), {0, comm.rank == root ? bytes : 0});
  exchange_all(comm, what, number, data, to, data, part_of(comm.size, root, {0, comm.rank == root ? 0 : bytes}));
}

}  // namespace sim_cann
