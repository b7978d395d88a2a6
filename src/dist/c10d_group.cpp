// Process groups on c10d. Gloo runs collectives in host memory; the transports of device_transport.hpp run those between devices. The store
// is a TCPStore.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "dist/c10d_collective.hpp"
#include "dist/device_transport.hpp"
#include "dist/rendezvous.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hold_signal.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train {
namespace {

using detail::BackendPtr;
using detail::Gloo;
using detail::message_of;

std::string beat_key(int rank) { return "beat/" + std::to_string(rank); }
// Returns "" before the first beat of the rank.
std::string read_beat(c10d::Store& store, int rank) { return store.check({beat_key(rank)}) ? store.get_to_str(beat_key(rank)) : ""; }

// Returns the name of the transport that connects devices of this kind; "" if only host memory connects them.
std::string name_of_transport(const Device& device) { return device.kind == "cuda" ? "NCCL" : device.kind == "npu" ? "HCCL" : ""; }

// Gloo writes to its connections without MSG_NOSIGNAL. SIGPIPE is blocked while Gloo starts its threads, which inherit the signal mask: a
// write to a dead rank then fails, instead of ending this process too.
class C10dGroup final : public ProcessGroup {
 public:
  C10dGroup(const Launch& launch, const DistOptions& options, std::function<bool()> stopped);
  /// The group of some ranks of `whole`.
  C10dGroup(const C10dGroup& whole, const std::vector<int>& ranks, int number);
  ~C10dGroup() override;

  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.world_size; }
  int local_size() const override { return launch_.local_world_size; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override;

  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    return start("all_to_all", connections_.exchanges, in, [&](c10d::Backend& backend) {
      if (auto* gloo = dynamic_cast<detail::DuplexGloo*>(&backend)) return gloo->exchange(out, in);
      at::Tensor o = out, i = in;
      std::vector<int64_t> equal;
      return backend.alltoall_base(o, i, equal, equal);
    });
  }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override {
    return start("all_reduce", connections_.exchanges, tensor, [&](c10d::Backend& backend) {
      std::vector<at::Tensor> tensors{tensor};
      return backend.allreduce(tensors);
    });
  }
  std::unique_ptr<Collective> reduce(const at::Tensor& tensor) override {
    return start("reduce", connections_.exchanges, tensor, [&](c10d::Backend& backend) {
      std::vector<at::Tensor> tensors{tensor};
      return backend.reduce(tensors);
    });
  }
  std::unique_ptr<Collective> reduce_scatter(const at::Tensor& out, const at::Tensor& in) override {
    if (in.is_cpu()) return ProcessGroup::reduce_scatter(out, in);  // Gloo's reduce_scatter is an all-reduce, too
    return start("reduce_scatter", connections_.exchanges, in, [&](c10d::Backend& backend) {
      at::Tensor o = out, i = in;
      return backend._reduce_scatter_base(o, i);
    });
  }
  std::unique_ptr<Collective> distribute(const at::Tensor& tensor) override {
    return start_broadcast("distribute", connections_.gathers, tensor);
  }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    return start("all_gather", connections_.gathers, in, [&](c10d::Backend& backend) {
      // Only for two ranks. With more, Gloo's ring already sends to one neighbour while it receives from the other, and crosses from
      // machine to machine once.
      if (auto* gloo = dynamic_cast<detail::DuplexGloo*>(&backend); gloo != nullptr && size() == 2) return gloo->gather_all(out, in);
      at::Tensor o = out, i = in;
      return backend._allgather_base(o, i);
    });
  }
  std::string transport(const c10::Device& device) override;

  std::vector<std::string> gather(const std::string& call, const std::string& own) override;
  using ProcessGroup::gather;

  void broadcast(const at::Tensor& tensor) override { start_broadcast("broadcast", connections_.agreements, tensor)->wait(); }

  void main_first(const std::function<void()>& work) override;
  void does(std::string work) override { shared_->heartbeats->does(std::move(work)); }

  void abandon() noexcept override {
    shared_->heartbeats->leak();
    for (const auto& part : parts_) part->abandon();
    for (auto* group : {&connections_.exchanges, &connections_.gathers, &connections_.agreements}) (void)group->release();
    for (auto& [type, transport] : transports_) {
      // A kernel that waits for another rank keeps the device busy as long as its communicator exists.
      if (transport.backend != nullptr) try {
          transport.backend->abort();
        } catch (...) {  // it is leaked in any case
        }
      (void)transport.backend.release();
    }
    (void)connections_.store.release();
  }

 private:
  // Message of gather(). The first collective sends the length of the text and its first kInline bytes; a second one follows if a text is
  // longer.
  struct Record {
    static constexpr size_t kInline = 488, kCall = 16;
    int64_t length = 0;
    char call[kCall] = {};
    char bytes[kInline] = {};
  };

  void start_heartbeats();
  void wait_for_main(const std::string& key);
  detail::Rendezvous rendezvous() const { return {launch_, on_one_host_, shared_, timeout_, stopped_}; }
  void check_same(const Gloo& group, const std::string& operation, const at::Tensor& given);
  std::vector<at::Tensor> gather_bytes(const Gloo& group, const std::string& call, const void* own, size_t size);

  // Transport between the devices of one kind. One transport serves all sequences, because the callers make the same calls in one order.
  struct Transport {
    std::string name = kHostTransport;
    BackendPtr backend{};
  };

  // Starts a collective: by `group` if `given` is in host memory, else by the transport of its device.
  template <class Fn>
  std::unique_ptr<Collective> start(const std::string& operation, const Gloo& group, const at::Tensor& given, Fn&& fn) {
    check(group.defined(), ErrorKind::Peer, operation.c_str(), shared_->who, " has left the group");
    if (debug_) check_same(group, operation, given);
    const auto sequence = shared_->recorder.begin(operation, "", static_cast<int64_t>(given.nbytes()));
    c10d::Backend* backend = group.get();
    if (!given.is_cpu()) backend = transports_.at(given.device().type()).backend.get();
    auto work = shared_->guarded(operation, [&] { return fn(*backend); });
    return std::make_unique<detail::C10dCollective>(shared_, operation, sequence, std::move(work), given.is_cpu());
  }
  std::unique_ptr<Collective> start_broadcast(const std::string& operation, const Gloo& group, const at::Tensor& tensor) {
    return start(operation, group, tensor, [&](c10d::Backend& backend) {
      std::vector<at::Tensor> tensors{tensor};
      return backend.broadcast(tensors);
    });
  }
  std::string why_no_transport(const Device& device) const;

  Launch launch_;
  bool on_one_host_;
  std::shared_ptr<detail::C10dShared> shared_;
  std::string backend_;  // dist.backend
  bool debug_;
  std::chrono::milliseconds timeout_, beat_interval_;
  std::function<bool()> stopped_;
  int64_t main_firsts_ = 0;
  detail::Connections connections_;
  std::map<c10::DeviceType, Transport> transports_;
  std::vector<std::shared_ptr<C10dGroup>> parts_;  // subgroups
};

C10dGroup::C10dGroup(const Launch& launch, const DistOptions& options, std::function<bool()> stopped)
    : launch_(launch),
      on_one_host_(launch.local_world_size == launch.world_size),
      shared_(std::make_shared<detail::C10dShared>("rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.world_size) +
                                                   " (" + host_name() + ")")),
      backend_(options.backend),
      debug_(options.debug),
      timeout_(static_cast<int64_t>(options.timeout * 1000)),
      beat_interval_(std::max(500, launch.world_size)),
      stopped_(std::move(stopped)) {
  const HoldSignal hold(SIGPIPE);
  connections_ = detail::meet(rendezvous());
  start_heartbeats();
}

C10dGroup::C10dGroup(const C10dGroup& whole, const std::vector<int>& ranks, int number)
    : launch_(whole.launch_),
      on_one_host_(whole.on_one_host_),
      shared_(whole.shared_),
      backend_(whole.backend_),
      debug_(whole.debug_),
      timeout_(whole.timeout_),
      beat_interval_(whole.beat_interval_),
      stopped_(whole.stopped_) {
  const auto own = std::find(ranks.begin(), ranks.end(), whole.rank());
  check(own != ranks.end(), ErrorKind::Usage, "process group", shared_->who, " is not in the group of ranks ", ranks);
  const HoldSignal hold(SIGPIPE);
  launch_.rank = static_cast<int>(own - ranks.begin());
  launch_.world_size = static_cast<int>(ranks.size());
  launch_.local_world_size = std::min(launch_.local_world_size, launch_.world_size);
  const auto name = str_cat("part ", number, " of ", ranks.front());
  connections_ = detail::connect(rendezvous(), c10::make_intrusive<c10d::PrefixStore>(name, whole.connections_.store));
}

std::shared_ptr<ProcessGroup> C10dGroup::subgroup(const std::vector<int>& ranks) {
  parts_.push_back(std::make_shared<C10dGroup>(*this, ranks, static_cast<int>(parts_.size())));
  return parts_.back();
}

C10dGroup::~C10dGroup() {
  for (auto& [type, transport] : transports_) {
    if (transport.backend == nullptr) continue;
    try {
      transport.backend->shutdown();
    } catch (const std::exception& e) {
      log_warning(transport.name, " does not end: ", message_of(e));
    }
  }
}

// Each rank writes two heartbeats a second, or fewer if there are so many ranks that they would keep the store busy.
void C10dGroup::start_heartbeats() {
  const auto write = [store = connections_.store, own = beat_key(launch_.rank)](const std::string& beat) { store->set(own, beat); };
  const auto read = [store = connections_.store, ranks = launch_.world_size] {
    std::vector<std::string> heartbeats;
    for (int r = 0; r < ranks; ++r) heartbeats.push_back(read_beat(*store, r));
    return heartbeats;
  };
  shared_->heartbeats = std::make_unique<detail::Heartbeats>(detail::Heartbeats::Store{write, read}, beat_interval_);
}

void C10dGroup::main_first(const std::function<void()>& work) {
  const auto key = "main_first/" + std::to_string(main_firsts_++);
  if (launch_.rank != 0) {
    wait_for_main(key);
    return work();
  }
  const auto end = [&](const std::string& how) { shared_->guarded("main_first", [&] { connections_.store->set(key, how); }); };
  try {
    work();
  } catch (...) {
    end("failed");
    throw;
  }
  end("done");
}

// Polls the store, since a collective would time out.
void C10dGroup::wait_for_main(const std::string& key) {
  using Clock = std::chrono::steady_clock;
  shared_->heartbeats->waits(true);
  std::string last;
  auto since = Clock::now();
  const auto is_there = [&] { return shared_->guarded("main_first", [&] { return connections_.store->check({key}); }); };
  while (!is_there()) {
    const auto beat = shared_->guarded("main_first", [&] { return read_beat(*connections_.store, 0); });
    if (beat != last) since = Clock::now();
    last = beat;
    if (stopped_ && stopped_()) throw stopped_while_waiting(shared_->who);
    check(Clock::now() - since < timeout_, ErrorKind::Peer, "main_first", shared_->who,
          " waits for rank 0, which has given no sign of life for ", timeout_.count() / 1000, " s");
    std::this_thread::sleep_for(beat_interval_);
  }
  shared_->heartbeats->waits(false);
  check(shared_->guarded("main_first", [&] { return connections_.store->get_to_str(key); }) == "done", ErrorKind::Peer, "main_first",
        shared_->who, " waits for rank 0, which has failed; hint: the first error among the messages of all ranks is the cause");
}

// Returns why this rank has no transport for the device; "" if it has one. Called before any wait for other ranks.
std::string C10dGroup::why_no_transport(const Device& device) const {
  const std::string name = name_of_transport(device);
  if (name.empty() || (backend_ != "auto" && to_lower(name) != backend_))
    return backend_ + " does not connect devices of the kind " + device.kind;
  if (const int count = backend_of(device).count(); count < launch_.local_world_size)
    return str_cat(launch_.local_world_size, " ranks share ", count, " devices of the kind ", device.kind, ", and ", name,
                   " needs a device for each");
  return name == "NCCL" ? detail::why_no_nccl() : detail::why_no_hccl();
}

// Either all ranks use the transport between devices, or no rank does.
std::string C10dGroup::transport(const c10::Device& device) {
  check(!device.is_cpu() || backend_ == "auto" || backend_ == "gloo", ErrorKind::Usage, "dist.backend", backend_,
        " does not connect host memory; allowed for device=cpu: auto, gloo");
  const auto own = device_of(device);
  if (device.is_cpu() || backend_ == "gloo" || (backend_ == "auto" && name_of_transport(own).empty())) return kHostTransport;
  const auto [found, is_new] = transports_.try_emplace(device.type());
  if (!is_new) return found->second.name;

  const auto reasons = gather("transport", why_no_transport(own));
  for (size_t r = 0; r < reasons.size(); ++r) {
    if (reasons[r].empty()) continue;
    check(backend_ == "auto", ErrorKind::Device, "dist.backend", "rank ", r, ": ", reasons[r]);
    if (rank() == 0) log_warning("gradients travel over Gloo, by copies in host memory; rank ", r, ": ", reasons[r]);
    return kHostTransport;
  }
  const auto name = name_of_transport(own);
  const HoldSignal hold(SIGPIPE);
  const detail::TransportPlace place{c10::make_intrusive<c10d::PrefixStore>(name, connections_.store), launch_.rank, launch_.world_size,
                                     timeout_};
  auto backend = shared_->guarded(name, [&] { return name == "NCCL" ? detail::make_nccl(place) : detail::make_hccl(place); });
  found->second = {name, std::move(backend)};
  return name;
}

// Checks, before a collective in the sequence of `group`, that every rank is about to make the same call.
void C10dGroup::check_same(const Gloo& group, const std::string& operation, const at::Tensor& given) {
  std::array<char, 128> own{};
  const auto text = str_cat(operation, " ", given.scalar_type(), " ", given.sizes());
  text.copy(own.data(), own.size() - 1);
  std::vector<std::string> all;
  for (const auto& of_rank : gather_bytes(group, "dist.debug", own.data(), own.size()))
    all.emplace_back(static_cast<const char*>(of_rank.data_ptr()));
  for (size_t r = 1; r < all.size(); ++r)
    check(all[r] == all[0], ErrorKind::Peer, "dist.debug", shared_->who, ": rank ", r, " calls '", all[r], "' and rank 0 '", all[0],
          "', after ", shared_->recorder.count(), " collectives; hint: all ranks must make the same calls in the same order");
}

std::vector<at::Tensor> C10dGroup::gather_bytes(const Gloo& group, const std::string& call, const void* own, size_t size) {
  check(group.defined(), ErrorKind::Peer, call.c_str(), shared_->who, " has left the group");
  const auto n = static_cast<int64_t>(size);
  auto in = at::empty({n}, at::kByte);
  auto out = at::empty({launch_.world_size * n}, at::kByte);
  std::memcpy(in.data_ptr(), own, size);
  const auto sequence = shared_->recorder.begin("agreement", call, n);
  shared_->wait_for_others(call, sequence, [&] { group->_allgather_base(out, in)->wait(); });
  return out.split(n);
}

std::vector<std::string> C10dGroup::gather(const std::string& call, const std::string& own) {
  Record record;
  record.length = static_cast<int64_t>(own.size());
  std::strncpy(record.call, call.c_str(), Record::kCall - 1);
  std::memcpy(record.bytes, own.data(), std::min(own.size(), Record::kInline));
  int64_t longest = 0;
  std::vector<int64_t> lengths;
  std::vector<std::string> out;
  for (const auto& given : gather_bytes(connections_.agreements, call, &record, sizeof record)) {
    Record theirs;
    std::memcpy(&theirs, given.data_ptr(), sizeof theirs);
    check(std::strcmp(theirs.call, record.call) == 0, ErrorKind::Peer, call.c_str(), shared_->who, " is in '", record.call, "' and rank ",
          out.size(), " is in '", theirs.call,
          "': the ranks have taken different branches; hint: a decision must be the same on each rank");
    longest = std::max(longest, theirs.length);
    lengths.push_back(theirs.length);
    out.emplace_back(theirs.bytes, static_cast<size_t>(std::min<int64_t>(theirs.length, Record::kInline)));
  }
  if (longest <= static_cast<int64_t>(Record::kInline)) return out;
  auto padded = own;
  padded.resize(static_cast<size_t>(longest));
  const auto whole = gather_bytes(connections_.agreements, call, padded.data(), padded.size());
  for (size_t r = 0; r < out.size(); ++r) out[r].assign(static_cast<const char*>(whole[r].data_ptr()), static_cast<size_t>(lengths[r]));
  return out;
}

}  // namespace

std::shared_ptr<ProcessGroup> make_process_group(const Launch& launch, const DistOptions& options, std::function<bool()> stopped) {
  check_limits(options, "dist");
  return std::make_shared<C10dGroup>(launch, options, std::move(stopped));
}

}  // namespace npu_train
