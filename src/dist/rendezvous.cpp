#include "dist/rendezvous.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kGroup = "process group";
constexpr int kSequences = 3;        // each has its own connections
constexpr rlim_t kOtherFiles = 128;  // other files that a run opens: data, checkpoints, logs, devices

std::string seconds(std::chrono::milliseconds time) { return std::to_string(time.count() / 1000) + " s"; }
std::string place(const Launch& launch) { return launch.host + ":" + std::to_string(launch.port); }

// Calls `work` in a thread. The thread is detached if the wait ends early, because neither the store nor Gloo can be interrupted; `work`
// therefore owns everything that it uses. `look` is called repeatedly during the wait, and throws if waiting has become useless. `late` is
// called at the timeout, and throws.
template <class Fn>
auto bounded(
    const Rendezvous& r, Fn work, const std::function<void()>& late, const std::function<void()>& look = [] {}) -> decltype(work()) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  const auto end =
      std::chrono::steady_clock::now() + r.timeout + std::chrono::seconds(5);  // grace period: `work` reports its own timeout better
  while (result.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    try {
      if (r.stopped && r.stopped()) throw stopped_while_waiting(r.shared->who);
      look();
      if (std::chrono::steady_clock::now() >= end) late();
    } catch (...) {
      thread.detach();
      throw;
    }
  }
  thread.join();
  return result.get();
}

Error store_has_ended(const Rendezvous& r, const std::string& how) {
  return {ErrorKind::Peer, kGroup, r.shared->who + ": the store at " + place(r.launch) + " ended while the ranks met: " + how,
          "another rank has failed; the first error among the messages of all ranks is the cause", std::current_exception()};
}

// Returns whether nothing listens at the address of the store. With AI_NUMERICHOST in `flags`, it does not look up host names, because a
// lookup may take seconds.
bool is_refused(const Launch& launch, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(launch.host.c_str(), std::to_string(launch.port).c_str(), &hints, &found) != 0) return false;
  bool refused = true;
  for (const auto* address = found; address != nullptr && refused; address = address->ai_next) {
    const int socket = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) continue;
    int error = ::connect(socket, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (pollfd ready{socket, POLLOUT, 0}; error == EINPROGRESS && ::poll(&ready, 1, /*milliseconds=*/1000) == 1) {
      socklen_t size = sizeof error;
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    refused = error == ECONNREFUSED;
    ::close(socket);
  }
  ::freeaddrinfo(found);
  return refused;
}

// Throws if the store of our launcher has ended. That store listens before any rank runs, and ends when a rank has failed; a client would
// then retry until its timeout.
void check_launcher_store(const Rendezvous& r) {
  if (r.launch.launcher != "npu_train" || r.launch.serves_store) return;
  if (is_refused(r.launch, AI_NUMERICHOST)) throw store_has_ended(r, "connections are refused");
}

// A process that serves a store serves it for all its groups until the process ends, because another rank may already be connecting for the
// next group.
StorePtr open_store(const std::string& host, const c10d::TCPStoreOptions& options) {
  if (!options.isServer) return c10::make_intrusive<c10d::TCPStore>(host, options);
  static std::mutex mutex;
  static auto* const served =
      new std::map<std::pair<std::string, uint16_t>, StorePtr>;  // never destroyed: its destructor waits for threads
  const std::lock_guard<std::mutex> lock(mutex);
  auto& store = (*served)[{host, options.port}];
  if (store == nullptr) store = c10::make_intrusive<c10d::TCPStore>(host, options);
  return store;
}

StorePtr store_of(const Rendezvous& r) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(r.launch.port);
  options.isServer = r.launch.serves_store;
  options.waitWorkers = false;
  options.timeout = r.timeout;
  try {
    return c10::make_intrusive<c10d::PrefixStore>("npu_train/" + std::to_string(r.launch.generation), open_store(r.launch.host, options));
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Device, kGroup,
                r.shared->who + (r.launch.serves_store ? " cannot serve the store at " : " cannot reach the store at ") + place(r.launch) +
                    ": " + message_of(e),
                r.launch.serves_store ? "another program may use the port; set MASTER_PORT to a free one for all ranks"
                                      : "MASTER_ADDR and MASTER_PORT must name the host of rank 0, or the launcher's store",
                std::current_exception());
  }
}

std::string here(int rank) { return "here/" + std::to_string(rank); }

// Returns the missing ranks; Error(Peer) if the store has ended meanwhile.
std::vector<std::string> missing_ranks(const Rendezvous& r, const StorePtr& store) {
  std::vector<std::string> out;
  try {
    for (int rank = 0; rank < r.launch.world_size; ++rank)
      if (!store->check({here(rank)})) out.push_back(std::to_string(rank));
  } catch (const std::exception& e) {
    throw store_has_ended(r, message_of(e));
  }
  return out;
}

// Waits for all ranks. Its error names the missing ones, which Gloo's error would not.
StorePtr wait_for_all(const Rendezvous& r, StorePtr store) {
  const auto rank = std::to_string(r.launch.rank);
  const auto me = host_name() + ", process " + std::to_string(::getpid());
  r.shared->guarded(kGroup, [&] {
    const auto owner = store->compareSet("owner/" + rank, "", me);
    check(owner == me, ErrorKind::Usage, kGroup, "two processes are rank ", rank, " of ", r.launch.world_size, " at ", place(r.launch),
          ": ", me, " and ", owner, "; hint: two launches use one MASTER_PORT, or RANK is not set for each process");
    store = c10::make_intrusive<c10d::PrefixStore>("group " + std::to_string(store->add("groups/" + rank, 1)), store);
    store->set(here(r.launch.rank), me);
  });
  std::vector<std::string> keys;
  for (int other = 0; other < r.launch.world_size; ++other) keys.push_back(here(other));
  try {
    store->wait(keys, r.timeout);
  } catch (const std::exception& e) {
    const auto missing = missing_ranks(r, store);
    throw Error(
        ErrorKind::Peer, kGroup,
        r.shared->who + ": after " + seconds(r.timeout) + (missing.size() == 1 ? " rank " : " ranks ") + join(missing) + " did not come",
        "all ranks must be started with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT", std::current_exception());
  }
  return store;
}

// Checks the limit of file descriptors before the first connection: Gloo would exceed it while it connects, on this rank and then on
// others.
void check_descriptors(const Rendezvous& r) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::error_code none;
  const std::filesystem::directory_iterator files("/proc/self/fd", none);
  const auto open = static_cast<rlim_t>(std::distance(begin(files), end(files)));
  const auto peers = static_cast<rlim_t>(r.launch.world_size - 1);
  const auto needed = open + kSequences * (peers + 1) + kOtherFiles;
  check(needed <= limit.rlim_cur, ErrorKind::Device, kGroup, r.shared->who, " needs ", needed, " file descriptors, ", kSequences,
        " for each of ", peers, " other ranks; the limit is ", limit.rlim_cur, "; hint: raise it where the ranks are started (ulimit -n ",
        needed, "); the hard limit is ", limit.rlim_max == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_max));
}

Gloo sequence(const Rendezvous& r, const StorePtr& store, const char* name) {
  return r.shared->guarded(kGroup, [&] {
    auto options = c10d::ProcessGroupGloo::Options::create(r.timeout);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(interface != nullptr ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                               : r.on_one_host      ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                                    : c10d::ProcessGroupGloo::createDefaultDevice());
    options->threads = 1;  // one sequence needs no more
    return c10::make_intrusive<DuplexGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store), r.launch.rank, r.launch.world_size,
                                           std::move(options));
  });
}

}  // namespace

Connections connect(const Rendezvous& rendezvous, const StorePtr& store) {
  check_descriptors(rendezvous);
  const auto work = [r = rendezvous, store] {
    return Connections{store, sequence(r, store, "exchanges"), sequence(r, store, "gathers"), sequence(r, store, "agreements")};
  };
  return bounded(rendezvous, work, [&] {
    throw Error(ErrorKind::Peer, kGroup,
                rendezvous.shared->who + ": the connections to the other ranks were not made within " + seconds(rendezvous.timeout),
                "another rank has failed or is late; the first error among the messages of all ranks is the cause");
  });
}

Connections meet(const Rendezvous& rendezvous) {
  check_descriptors(rendezvous);  // before the wait for other ranks
  const auto silent = [&] {
    if (is_refused(rendezvous.launch, 0))
      throw Error(
          ErrorKind::Device, kGroup,
          rendezvous.shared->who + " cannot reach the store at " + place(rendezvous.launch) + ": nothing listens there within " +
              seconds(rendezvous.timeout),
          "rank 0 has not been started or has ended; MASTER_ADDR and MASTER_PORT must name the host of rank 0, or the launcher's store");
    throw Error(ErrorKind::Device, kGroup,
                rendezvous.shared->who + ": " + place(rendezvous.launch) + " accepts connections, but does not answer as a store within " +
                    seconds(rendezvous.timeout),
                "another program may listen there; MASTER_ADDR and MASTER_PORT must name the host of rank 0, or the launcher's store");
  };
  const auto store = bounded(
      rendezvous, [r = rendezvous] { return store_of(r); }, silent, [&] { check_launcher_store(rendezvous); });
  const auto all = bounded(
      rendezvous, [r = rendezvous, store] { return wait_for_all(r, store); },
      [&] {
        throw Error(ErrorKind::Peer, kGroup, rendezvous.shared->who + ": the store at " + place(rendezvous.launch) + " does not answer",
                    "the process that serves it hangs, or another rank has failed");
      });
  return connect(rendezvous, all);
}

}  // namespace npu_train::detail
