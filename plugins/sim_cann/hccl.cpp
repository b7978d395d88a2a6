// The functions of libhccl.so. They check their arguments; streams run the collectives.
#include "hccl.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "acl.hpp"
#include "hccl_operations.hpp"

using namespace sim_cann;

namespace {

using Comm = std::shared_ptr<Communicator>;

int fail_call(int code, const std::string& text) { return fail(code, "EI0003: " + text); }

/// Arguments that all collectives have.
struct Call {
  const char* function;
  Comm comm;
  const DataType* type;
  std::string what;
};

constexpr const char* kReductions[] = {"sum", "prod", "max", "min"};

// Returns why the chip cannot reduce the dtype; "" if it can. As documented, a 910A does not reduce int16 and bfloat16, and other chips do
// not multiply them.
std::string why_not_reduced(int dtype, const DataType& type, int how) {
  if (how < 0 || how > 3) return "there is no reduction " + std::to_string(how);
  const std::string name = type.name;
  const bool small = name == "int16" || name == "bfloat16";
  if (type.reduce == nullptr || (small && (!soc().has_bf16 || how == 1)))
    return std::string(soc().name) + " has no " + kReductions[how] + " of " + name + " (HCCL's type " + std::to_string(dtype) + ")";
  return "";
}

/// Sets the members of `call` and returns the error code of an invalid argument. `how`: the reduction; -1 if the collective has none.
int begin(Call& call, const char* function, void* handle, int dtype, const std::string& more, int how = -1, int64_t root = -1) {
  call.function = function;
  const std::string name = function;
  if (handle == nullptr) return fail_call(kHcclPointer, name + ": there is no communicator");
  call.comm = *static_cast<Comm*>(handle);
  call.type = data_type(dtype);
  if (call.type == nullptr) return fail_call(kHcclNotSupported, name + ": sim_cann has no type " + std::to_string(dtype) + " of HCCL");
  if (!soc().has_bf16 && std::strcmp(call.type->name, "bfloat16") == 0)
    return fail_call(kHcclNotSupported, name + ": " + soc().name + " has no bfloat16");
  if (how >= 0) {
    if (const std::string why = why_not_reduced(dtype, *call.type, how); !why.empty())
      return fail_call(kHcclNotSupported, name + ": " + why);
  }
  if (root >= call.comm->size)
    return fail_call(kHcclParameter,
                     name + ": rank " + std::to_string(root) + " of " + std::to_string(call.comm->size) + " does not exist");
  call.what = name + " " + call.type->name + more + (how >= 0 ? std::string(", ") + kReductions[how] : "") +
              (root >= 0 ? ", root " + std::to_string(root) : "");
  return kHcclSuccess;
}

std::string elements(uint64_t count) { return "[" + std::to_string(count) + "]"; }

char* bytes_at(const void* address, size_t bytes) { return static_cast<char*>(host_address(address, bytes)); }

int put(const Call& call, void* stream, const Accesses& accesses, std::function<void()> run) {
  // A collective gets its number when it is called, so it cannot be replayed.
  if (is_captured(stream)) return fail_call(kHcclNotSupported, call.what + ": sim_cann captures no collectives");
  enqueue(stream, call.function, std::move(run), accesses);
  return kHcclSuccess;
}

/// Returns the accesses of a collective: it reads the first memory and writes the second one. Either may be empty.
Accesses accesses_of(const void* in, size_t in_bytes, const void* out, size_t out_bytes) {
  Accesses all;
  if (!races_are_checked()) return all;
  if (in_bytes > 0) all.push_back({.start = in, .width = in_bytes});
  if (out_bytes > 0) all.push_back({.start = out, .width = out_bytes, .writes = true});
  return all;
}

/// Returns a part for each rank, from counts and displacements in elements.
std::vector<Range> parts_of(const void* counts, const void* begins, int ranks, size_t width) {
  std::vector<Range> out;
  for (int r = 0; r < ranks; ++r) {
    out.push_back({static_cast<size_t>(static_cast<const uint64_t*>(begins)[r]) * width,
                   static_cast<size_t>(static_cast<const uint64_t*>(counts)[r]) * width});
  }
  return out;
}

size_t end_of(const std::vector<Range>& parts) {
  size_t out = 0;
  for (const Range& part : parts) out = part.bytes == 0 ? out : std::max(out, part.begin + part.bytes);
  return out;
}

/// Enqueues a collective in which each rank sends a part of `in` to every rank.
int exchange_parts(const Call& call, const void* in, std::vector<Range> to, const void* out, std::vector<Range> from, void* stream) {
  const Accesses accesses = accesses_of(in, end_of(to), out, end_of(from));
  return put(call, stream, accesses, [call, in, out, to = std::move(to), from = std::move(from), number = call.comm->next_collective()] {
    exchange_all(*call.comm, call.what, number, bytes_at(in, end_of(to)), to, bytes_at(out, end_of(from)), from);
  });
}

// The start of HcclCommConfig, up to the last member that is read.
struct CommConfig {
  uint64_t size;
  uint32_t magic, version;
  uint64_t reserved;
  uint32_t buffer_size, deterministic;
  char name[128], udi[128];
  uint32_t expansion, traffic_class, service_level, world_rank;
  uint64_t job;
  uint8_t zero_copy;
  int32_t exec_timeout;
};
constexpr uint32_t kConfigMagic = 0xf0f0f0f0;

// Returns the milliseconds that an operation may wait for other ranks; -1 for 0 s, which means no limit.
int exec_timeout(const CommConfig* config) {
  const char* set = std::getenv("HCCL_EXEC_TIMEOUT");
  int64_t seconds = set != nullptr && *set != '\0' ? std::strtol(set, nullptr, 10) : 1836;
  if (config != nullptr && config->size >= sizeof(CommConfig) && config->exec_timeout > 0) seconds = config->exec_timeout;
  if (seconds <= 0) return -1;
  return static_cast<int>(std::min<int64_t>(seconds, 1 << 20) * 1000);
}

// Returns why HCCL cannot connect `ranks` ranks; "" if it can. A server has eight 910 chips; eight 910A are two rings of four.
std::string why_not_so_many(uint32_t ranks) {
  const std::string name = soc().name;
  const bool fits = name == "Ascend910A"               ? ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8
                    : name.starts_with("Ascend910_93") ? ranks >= 1 && ranks <= 16
                                                       : ranks >= 1 && ranks <= 8;
  const char* allowed = name == "Ascend910A" ? "1, 2, 4, 8" : name.starts_with("Ascend910_93") ? "1 to 16" : "1 to 8";
  return fits ? "" : std::to_string(ranks) + " ranks on one server; allowed for " + name + ": " + allowed;
}

int create(const char* function, uint32_t ranks, const char* root, uint32_t rank, const CommConfig* config, void** out) {
  const std::string name = std::string(function) + ": ";
  if (root == nullptr || out == nullptr) return fail_call(kHcclPointer, name + "a pointer is null");
  if (const std::string why = why_not_so_many(ranks); !why.empty()) return fail_call(kHcclParameter, name + why);
  if (rank >= ranks) return fail_call(kHcclParameter, name + "there is no rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  if (config != nullptr && config->magic != kConfigMagic) return fail_call(kHcclParameter, name + "the configuration is not initialised");
  static int number = 0;
  std::string its_name = config != nullptr ? std::string(config->name, strnlen(config->name, sizeof config->name)) : "";
  if (its_name.empty()) its_name = "sim_cann_" + std::to_string(++number);
  try {
    auto sockets = meet_ranks(root, static_cast<int>(ranks), static_cast<int>(rank), physical_device(current_device()));
    *out = new Comm(std::make_shared<Communicator>(its_name, static_cast<int>(rank), std::move(sockets), exec_timeout(config)));
    return kHcclSuccess;
  } catch (const std::exception& e) {
    return fail(kHcclConnect, "EI0006: " + name + "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ": " + e.what());
  }
}

}  // namespace

SIM_CANN_ENTRY int HcclGetRootInfo(char* info) {
  if (info == nullptr) return fail_call(kHcclPointer, "HcclGetRootInfo: a pointer is null");
  try {
    open_root(info);
    return kHcclSuccess;
  } catch (const std::exception& e) {
    return fail(kHcclConnect, std::string("EI0006: HcclGetRootInfo: ") + e.what());
  }
}
SIM_CANN_ENTRY int HcclCommInitRootInfo(uint32_t ranks, const char* root, uint32_t rank, void** out) {
  return create("HcclCommInitRootInfo", ranks, root, rank, nullptr, out);
}
SIM_CANN_ENTRY int HcclCommInitRootInfoConfig(uint32_t ranks, const char* root, uint32_t rank, const CommConfig* config, void** out) {
  return create("HcclCommInitRootInfoConfig", ranks, root, rank, config, out);
}
SIM_CANN_ENTRY int HcclCommDestroy(void* handle) {
  if (handle == nullptr) return fail_call(kHcclPointer, "HcclCommDestroy: there is no communicator");
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  (*comm)->close();
  return kHcclSuccess;
}
SIM_CANN_ENTRY int HcclGetCommAsyncError(void* handle, int* error) {
  if (handle == nullptr || error == nullptr) return fail_call(kHcclPointer, "HcclGetCommAsyncError: a pointer is null");
  const std::string why = (*static_cast<Comm*>(handle))->error();
  if (!why.empty()) fail(kHcclRemote, "EI0002: " + why);
  *error = why.empty() ? kHcclSuccess : kHcclRemote;
  return kHcclSuccess;
}
SIM_CANN_ENTRY const char* HcclGetErrorString(int code) {
  switch (code) {
    case kHcclSuccess:
      return "no error";
    case kHcclParameter:
      return "parameter error";
    case kHcclPointer:
      return "empty pointer";
    case kHcclNotSupported:
      return "feature not supported";
    case kHcclConnect:
      return "connection failed";
    case kHcclRemote:
      return "error of another rank";
    default:
      return "unknown error";
  }
}
// Accepts the settings of HcclCommConfig up to the execution timeout.
SIM_CANN_ENTRY uint32_t HcclGetCommConfigCapability() { return 9; }
SIM_CANN_ENTRY int HcclGetCommName(void* handle, char* name) {
  if (handle == nullptr || name == nullptr) return fail_call(kHcclPointer, "HcclGetCommName: a pointer is null");
  const std::string& its_name = (*static_cast<Comm*>(handle))->name;
  std::memcpy(name, its_name.c_str(), its_name.size() + 1);
  return kHcclSuccess;
}
SIM_CANN_ENTRY int HcclGetRankSize(void* handle, uint32_t* size) {
  *size = static_cast<uint32_t>((*static_cast<Comm*>(handle))->size);
  return kHcclSuccess;
}
SIM_CANN_ENTRY int HcclGetRankId(void* handle, uint32_t* rank) {
  *rank = static_cast<uint32_t>((*static_cast<Comm*>(handle))->rank);
  return kHcclSuccess;
}
// Sums are always deterministic here, since they are computed in rank order.
SIM_CANN_ENTRY int HcclSetConfig(int, int32_t) { return kHcclSuccess; }
SIM_CANN_ENTRY int HcclGetConfig(int, int32_t* value) {
  *value = 1;
  return kHcclSuccess;
}

#define SIM_CANN_NO_HCCL(NAME) \
  SIM_CANN_ENTRY int NAME() { return fail_call(kHcclNotSupported, "sim_cann does not play " #NAME "; it needs a real NPU"); }
SIM_CANN_NO_HCCL(HcclCommInitClusterInfo)        // rank tables
SIM_CANN_NO_HCCL(HcclCommInitClusterInfoConfig)  // rank tables with options
SIM_CANN_NO_HCCL(HcclCreateSubCommConfig)        // parts of a communicator of a rank table
SIM_CANN_NO_HCCL(HcclCommInitAll)                // several devices in one process
SIM_CANN_NO_HCCL(HcclCommSuspend)
SIM_CANN_NO_HCCL(HcclCommResume)

SIM_CANN_ENTRY int HcclAllReduce(void* in, void* out, uint64_t count, int dtype, int how, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclAllReduce", comm, dtype, elements(count), how); code != kHcclSuccess) return code;
  const size_t bytes = count * call.type->bytes;
  return put(call, stream, accesses_of(in, bytes, out, bytes), [=, number = call.comm->next_collective()] {
    all_reduce(*call.comm, call.what, number, bytes_at(in, bytes), bytes_at(out, bytes), count, *call.type, Reduction{how});
  });
}
SIM_CANN_ENTRY int HcclReduce(void* in, void* out, uint64_t count, int dtype, int how, uint32_t root, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclReduce", comm, dtype, elements(count), how, root); code != kHcclSuccess) return code;
  const size_t bytes = count * call.type->bytes;
  const bool gets = call.comm->rank == static_cast<int>(root);
  return put(call, stream, accesses_of(in, bytes, out, gets ? bytes : 0), [=, number = call.comm->next_collective()] {
    char* result = gets ? bytes_at(out, bytes) : nullptr;
    reduce(*call.comm, call.what, number, bytes_at(in, bytes), result, count, *call.type, Reduction{how}, static_cast<int>(root));
  });
}
SIM_CANN_ENTRY int HcclReduceScatter(void* in, void* out, uint64_t count, int dtype, int how, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclReduceScatter", comm, dtype, elements(count), how); code != kHcclSuccess) return code;
  const size_t bytes = count * call.type->bytes;
  const auto parts = equal_parts(call.comm->size, bytes);
  return put(call, stream, accesses_of(in, end_of(parts), out, bytes), [=, number = call.comm->next_collective()] {
    reduce_scatter(*call.comm, call.what, number, bytes_at(in, end_of(parts)), parts, bytes_at(out, bytes), *call.type, Reduction{how});
  });
}
SIM_CANN_ENTRY int HcclReduceScatterV(void* in, const void* counts, const void* begins, void* out, uint64_t, int dtype, int how, void* comm,
                                      void* stream) {
  Call call;
  if (const int code = begin(call, "HcclReduceScatterV", comm, dtype, "", how); code != kHcclSuccess) return code;
  auto parts = parts_of(counts, begins, call.comm->size, call.type->bytes);
  const Accesses accesses = accesses_of(in, end_of(parts), out, parts[static_cast<size_t>(call.comm->rank)].bytes);
  return put(call, stream, accesses, [=, parts = std::move(parts), number = call.comm->next_collective()] {
    char* to = bytes_at(out, parts[static_cast<size_t>(call.comm->rank)].bytes);
    reduce_scatter(*call.comm, call.what, number, bytes_at(in, end_of(parts)), parts, to, *call.type, Reduction{how});
  });
}
SIM_CANN_ENTRY int HcclBroadcast(void* data, uint64_t count, int dtype, uint32_t root, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclBroadcast", comm, dtype, elements(count), -1, root); code != kHcclSuccess) return code;
  const size_t bytes = count * call.type->bytes;
  const bool sends = call.comm->rank == static_cast<int>(root);
  return put(call, stream, accesses_of(data, sends ? bytes : 0, data, sends ? 0 : bytes), [=, number = call.comm->next_collective()] {
    broadcast(*call.comm, call.what, number, bytes_at(data, bytes), bytes, static_cast<int>(root));
  });
}
SIM_CANN_ENTRY int HcclScatter(void* in, void* out, uint64_t count, int dtype, uint32_t root, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclScatter", comm, dtype, elements(count), -1, root); code != kHcclSuccess) return code;
  const int ranks = call.comm->size;
  const size_t bytes = count * call.type->bytes;
  auto to = call.comm->rank == static_cast<int>(root) ? equal_parts(ranks, bytes) : std::vector<Range>(static_cast<size_t>(ranks));
  return exchange_parts(call, in, std::move(to), out, part_of(ranks, static_cast<int>(root), {0, bytes}), stream);
}
SIM_CANN_ENTRY int HcclAllGather(void* in, void* out, uint64_t count, int dtype, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclAllGather", comm, dtype, elements(count)); code != kHcclSuccess) return code;
  const size_t bytes = count * call.type->bytes;
  std::vector<Range> to(static_cast<size_t>(call.comm->size), {0, bytes});
  return exchange_parts(call, in, std::move(to), out, equal_parts(call.comm->size, bytes), stream);
}
SIM_CANN_ENTRY int HcclAllGatherV(void* in, uint64_t count, void* out, const void* counts, const void* begins, int dtype, void* comm,
                                  void* stream) {
  Call call;
  if (const int code = begin(call, "HcclAllGatherV", comm, dtype, ""); code != kHcclSuccess) return code;
  std::vector<Range> to(static_cast<size_t>(call.comm->size), {0, count * call.type->bytes});
  return exchange_parts(call, in, std::move(to), out, parts_of(counts, begins, call.comm->size, call.type->bytes), stream);
}
SIM_CANN_ENTRY int HcclAlltoAll(const void* in, uint64_t count, int dtype, const void* out, uint64_t, int, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclAlltoAll", comm, dtype, elements(count)); code != kHcclSuccess) return code;
  const auto parts = equal_parts(call.comm->size, count * call.type->bytes);
  return exchange_parts(call, in, parts, out, parts, stream);
}
SIM_CANN_ENTRY int HcclAlltoAllV(const void* in, const void* counts, const void* begins, int dtype, const void* out, const void* out_counts,
                                 const void* out_begins, int, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclAlltoAllV", comm, dtype, ""); code != kHcclSuccess) return code;
  const int ranks = call.comm->size;
  return exchange_parts(call, in, parts_of(counts, begins, ranks, call.type->bytes), out,
                        parts_of(out_counts, out_begins, ranks, call.type->bytes), stream);
}
// `matrix[i * ranks + j]`: number of elements that rank i sends to rank j. The parts follow each other in memory.
SIM_CANN_ENTRY int HcclAlltoAllVC(const void* in, const void* matrix, int dtype, const void* out, int, void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclAlltoAllVC", comm, dtype, ""); code != kHcclSuccess) return code;
  const auto ranks = static_cast<size_t>(call.comm->size), own = static_cast<size_t>(call.comm->rank);
  const auto* counts = static_cast<const uint64_t*>(matrix);
  std::vector<Range> to, from;
  for (size_t r = 0; r < ranks; ++r) {
    to.push_back({r == 0 ? 0 : to.back().begin + to.back().bytes, counts[own * ranks + r] * call.type->bytes});
    from.push_back({r == 0 ? 0 : from.back().begin + from.back().bytes, counts[r * ranks + own] * call.type->bytes});
  }
  return exchange_parts(call, in, std::move(to), out, std::move(from), stream);
}
SIM_CANN_ENTRY int HcclBarrier(void* comm, void* stream) {
  Call call;
  if (const int code = begin(call, "HcclBarrier", comm, 0, ""); code != kHcclSuccess) return code;
  return put(call, stream, {}, [=, number = call.comm->next_collective()] {
    const auto ranks = static_cast<size_t>(call.comm->size);
    std::vector<char> in(1), out(ranks);
    exchange_all(*call.comm, call.what, number, in.data(), std::vector<Range>(ranks, {0, 1}), out.data(), equal_parts(call.comm->size, 1));
  });
}

namespace {

/// A message between two ranks; its memory is on the device.
struct Item {
  bool is_send;
  int peer;
  const void* at;
  size_t bytes;
  Tag tag;
};

int send_and_receive(const Call& call, const std::vector<Item>& items, void* stream) {
  Accesses accesses;
  for (const Item& item : items) {
    const Accesses one = accesses_of(item.at, item.is_send ? item.bytes : 0, item.at, item.is_send ? 0 : item.bytes);
    accesses.insert(accesses.end(), one.begin(), one.end());
  }
  return put(call, stream, accesses, [call, items] {
    std::vector<Message> sends, receives;
    for (const Item& item : items)
      (item.is_send ? sends : receives).push_back({item.peer, item.tag, bytes_at(item.at, item.bytes), item.bytes});
    call.comm->exchange("a message between two ranks", sends, receives);
  });
}

int begin_item(Call& call, const char* function, bool is_send, const void* at, uint64_t count, int dtype, uint32_t peer, void* comm,
               Item& out) {
  const int code = begin(call, function, comm, dtype, elements(count), -1, peer);
  if (code != kHcclSuccess) return code;
  const int other = static_cast<int>(peer);
  if (other == call.comm->rank) return fail_call(kHcclParameter, std::string(function) + ": a rank sends nothing to itself");
  const uint64_t number = is_send ? call.comm->next_sent(other) : call.comm->next_received(other);
  out = {is_send, other, at, count * call.type->bytes, {number, 0, true}};
  return kHcclSuccess;
}

/// The layout of HcclSendRecvItem.
struct SendRecvItem {
  int kind;  // 0: send
  void* at;
  uint64_t count;
  int dtype;
  uint32_t peer;
};

}  // namespace

SIM_CANN_ENTRY int HcclSend(void* in, uint64_t count, int dtype, uint32_t to, void* comm, void* stream) {
  Call call;
  Item item;
  const int code = begin_item(call, "HcclSend", true, in, count, dtype, to, comm, item);
  return code != kHcclSuccess ? code : send_and_receive(call, {item}, stream);
}
SIM_CANN_ENTRY int HcclRecv(void* out, uint64_t count, int dtype, uint32_t from, void* comm, void* stream) {
  Call call;
  Item item;
  const int code = begin_item(call, "HcclRecv", false, out, count, dtype, from, comm, item);
  return code != kHcclSuccess ? code : send_and_receive(call, {item}, stream);
}
SIM_CANN_ENTRY int HcclBatchSendRecv(const SendRecvItem* items, uint32_t count, void* comm, void* stream) {
  Call call;
  std::vector<Item> all(count);
  for (uint32_t i = 0; i < count; ++i) {
    const SendRecvItem& one = items[i];
    const int code = begin_item(call, "HcclBatchSendRecv", one.kind == 0, one.at, one.count, one.dtype, one.peer, comm, all[i]);
    if (code != kHcclSuccess) return code;
  }
  return count == 0 ? int{kHcclSuccess} : send_and_receive(call, all, stream);
}
