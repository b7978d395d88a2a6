// A rank for the tests of launchers: it meets the others through the store, and prints how it was launched.
//
//   launch_probe             every rank waits for every other one, and prints a line
//   launch_probe after-zero  rank 0 ends at once; the last rank uses the store after that
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include <unistd.h>

#include "npu_train/core/launch.hpp"

namespace {

using npu_train::Launch;

c10::intrusive_ptr<c10d::Store> store_of(const Launch& launch) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = launch.serves_store;
  options.waitWorkers = false;
  options.timeout = std::chrono::minutes(5);
  return c10::make_intrusive<c10d::PrefixStore>(std::to_string(launch.generation),
                                                c10::make_intrusive<c10d::TCPStore>(launch.host, options));
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::string get(c10d::Store& store, const std::string& key) {
  const auto value = store.get(key);  // waits until the key exists
  return {value.begin(), value.end()};
}

void meet(c10d::Store& store, const Launch& launch) {
  set(store, "here/" + std::to_string(launch.rank), "yes");
  for (int rank = 0; rank < launch.world_size; ++rank) get(store, "here/" + std::to_string(rank));
  std::printf("%s: rank %d of %d, local %d of %d, generation %d\n", launch.launcher.c_str(), launch.rank, launch.world_size,
              launch.local_rank, launch.local_world_size, launch.generation);
  std::fflush(stdout);
  set(store, "done/" + std::to_string(launch.rank), "yes");
  if (!launch.serves_store) return;
  for (int rank = 0; rank < launch.world_size; ++rank) get(store, "done/" + std::to_string(rank));
}

void use_after_zero(c10d::Store& store, const Launch& launch) {
  if (launch.rank == 0) set(store, "zero", std::to_string(::getpid()));
  if (launch.rank != launch.world_size - 1) return;
  const auto zero = static_cast<pid_t>(std::stol(get(store, "zero")));
  while (::kill(zero, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  set(store, "last", "yes");
  std::printf("after rank 0 the store has: %s\n", get(store, "last").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto launch = npu_train::launch_of_environment();
    if (launch.world_size == 1) {
      std::printf("alone, generation %d\n", launch.generation);
      return 0;
    }
    const auto store = store_of(launch);
    if (argc > 1)
      use_after_zero(*store, launch);
    else
      meet(*store, launch);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
