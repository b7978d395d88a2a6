// Ranks that are threads of one process, and their exchange of values.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train::testing {

/// A table to which every rank writes its values, and from which all ranks read in rank order.
class Exchange {
 public:
  struct Message {
    std::string call;
    std::vector<double> numbers{};
    std::vector<at::Tensor> tensors{};  // must not be changed afterwards
    unsigned bits = 0;
    std::string text{};
  };

  explicit Exchange(int ranks) : ranks_(ranks), coming_(static_cast<size_t>(ranks)) {}
  int ranks() const { return ranks_; }

  /// Returns what every rank has passed to this call. Error(Peer) if a rank has given up, does not arrive, or makes another call.
  std::vector<Message> all(int rank, Message own) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto call = own.call;
    const auto turn = turn_;
    coming_[static_cast<size_t>(rank)] = std::move(own);
    if (++arrived_ == coming_.size()) {
      complete_ = std::exchange(coming_, std::vector<Message>(coming_.size()));
      arrived_ = 0;
      ++turn_;
      came_.notify_all();
    } else {
      came_.wait_for(lock, std::chrono::minutes(5), [&] { return turn_ != turn || abandoned_; });
    }
    check(turn_ != turn, ErrorKind::Peer, "Exchange", "rank ", rank, " waits in ", call, " for a rank that gave up");
    for (const auto& m : complete_) check(m.call == call, ErrorKind::Peer, "Exchange", "ranks are in ", call, " and in ", m.call);
    return complete_;
  }
  void abandon() {
    const std::lock_guard<std::mutex> lock(mutex_);
    abandoned_ = true;
    came_.notify_all();
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Message> coming_, complete_;
  size_t arrived_ = 0;
  int64_t turn_ = 0;
  bool abandoned_ = false;
};

/// Runs `body(rank)` in a thread for each rank and returns the error of each.
template <class Fn>
std::vector<std::optional<Error>> errors_of_ranks(Exchange& exchange, Fn body) {
  std::vector<std::optional<Error>> errors(static_cast<size_t>(exchange.ranks()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < exchange.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        translated("rank", [&] { body(rank); });
      } catch (const Error& e) {
        errors[static_cast<size_t>(rank)] = e;
        exchange.abandon();
      }
    });
  for (auto& t : threads) t.join();
  return errors;
}

/// Like the function above, for bodies that must not fail on any rank. Rethrows the first error that is not about another rank.
template <class Fn>
void on_ranks(Exchange& exchange, Fn body) {
  std::optional<Error> first;
  for (const auto& error : errors_of_ranks(exchange, body))
    if (error && (!first || first->kind() == ErrorKind::Peer)) first = error;
  if (first) throw *first;
}

}  // namespace npu_train::testing
