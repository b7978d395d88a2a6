// A ProcessGroup whose ranks are threads of one process: for more ranks than a machine can run as processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "exchange.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::testing {

/// The tensors of one sequence of collectives, by the number of the collective.
class Mailbox {
 public:
  explicit Mailbox(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  void post(int64_t number, int rank, at::Tensor own) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& slot = slots_[number];
    slot.tensors.resize(ranks_);
    slot.tensors[static_cast<size_t>(rank)] = std::move(own);
    if (++slot.posted == ranks_) came_.notify_all();
  }
  bool complete(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return slots_[number].posted == ranks_;
  }
  /// Returns the tensors of all ranks; each rank must call it once.
  std::vector<at::Tensor> take(int64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came = came_.wait_for(lock, std::chrono::minutes(5), [&] { return slots_[number].posted == ranks_; });
    check(came, ErrorKind::Peer, "Mailbox", "a rank does not come");
    auto& slot = slots_[number];
    auto out = slot.tensors;
    if (++slot.taken == ranks_) slots_.erase(number);
    return out;
  }

 private:
  struct Slot {
    std::vector<at::Tensor> tensors;
    size_t posted = 0, taken = 0;
  };
  size_t ranks_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<int64_t, Slot> slots_;
};

/// The bytes of tensors that each rank sends to each other rank, by rank among all ranks.
class Traffic {
 public:
  void add(int from, int to, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (from != to) sent_[{from, to}] += bytes;
  }
  std::map<std::pair<int, int>, int64_t> sent() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sent_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, int64_t> sent_;
};

/// The objects that the ranks of one group share.
struct Network {
  explicit Network(int ranks) : agreements(ranks), exchanges(ranks), gathers(ranks) {
    for (int r = 0; r < ranks; ++r) numbers.push_back(r);
  }
  /// Returns the network that some of the ranks share, the same object for each of them. `number` is the number of this call on each rank.
  std::shared_ptr<Network> part(const std::vector<int>& ranks, size_t number) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto& found = parts[{ranks, number}];
    if (found == nullptr) {
      found = std::make_shared<Network>(static_cast<int>(ranks.size()));
      found->traffic = traffic;
      for (size_t r = 0; r < ranks.size(); ++r) found->numbers[r] = numbers[static_cast<size_t>(ranks[r])];
    }
    return found;
  }
  std::vector<int> numbers;  ///< rank among all ranks, for each of this group
  std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();
  Exchange agreements;
  Mailbox exchanges, gathers;
  std::mutex mutex;
  std::map<std::pair<std::vector<int>, size_t>, std::shared_ptr<Network>> parts;
};

class InProcessGroup final : public ProcessGroup {
 public:
  /// Numbers of calls, and the bytes that this rank sends to others.
  struct Counts {
    int64_t exchanges = 0, gathers = 0, agreements = 0, bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };

  InProcessGroup(std::shared_ptr<Network> network, int rank) : network_(std::move(network)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return network_->agreements.ranks(); }
  Counts counts() const { return counts_; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    return std::make_shared<InProcessGroup>(network_->part(ranks, parts_++), own);
  }

  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    const auto part = static_cast<int64_t>(in.nbytes()) / size();
    for (int r = 0; r < size(); ++r) sends(r, part);
    return send(network_->exchanges, counts_.exchanges, in, [this, out](const std::vector<at::Tensor>& all) {
      const auto n = out.numel() / size();
      for (int r = 0; r < size(); ++r) out.narrow(0, r * n, n).copy_(all[static_cast<size_t>(r)].narrow(0, rank_ * n, n));
    });
  }
  /// Sends as a ring does, but adds in rank order.
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    sends((rank_ + 1) % size(), 2 * (bytes - bytes / size()));
    return send(network_->exchanges, counts_.exchanges, tensor,
                [tensor](const std::vector<at::Tensor>& all) { tensor.copy_(in_order(all)); });
  }
  std::unique_ptr<Collective> reduce(const at::Tensor& tensor) override {
    sends(0, static_cast<int64_t>(tensor.nbytes()));
    return send(network_->exchanges, counts_.exchanges, tensor, [this, tensor](const std::vector<at::Tensor>& all) {
      if (rank_ == 0)
        tensor.copy_(in_order(all));
      else
        tensor.fill_(777);
    });
  }
  std::unique_ptr<Collective> distribute(const at::Tensor& tensor) override {
    for (int r = 0; rank_ == 0 && r < size(); ++r) sends(r, static_cast<int64_t>(tensor.nbytes()));
    return send(network_->gathers, counts_.gathers, tensor, [tensor](const std::vector<at::Tensor>& all) { tensor.copy_(all[0]); });
  }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    for (int r = 0; r < size(); ++r) sends(r, static_cast<int64_t>(in.nbytes()));
    return send(network_->gathers, counts_.gathers, in, [this, out](const std::vector<at::Tensor>& all) {
      const auto n = out.numel() / size();
      for (int r = 0; r < size(); ++r) out.narrow(0, r * n, n).copy_(all[static_cast<size_t>(r)]);
    });
  }
  std::vector<std::string> gather(const std::string& call, const std::string& own) override {
    ++counts_.agreements;
    std::vector<std::string> out;
    for (auto& m : network_->agreements.all(rank_, {.call = call, .text = own})) out.push_back(m.text);
    return out;
  }
  void broadcast(const at::Tensor& tensor) override {
    ++counts_.agreements;
    const auto all = network_->agreements.all(rank_, {.call = "broadcast", .tensors = {tensor.clone()}});
    tensor.copy_(all[0].tensors[0]);
  }
  void main_first(const std::function<void()>& work) override {
    if (rank_ == 0) work();
    barrier("main_first");
    if (rank_ != 0) work();
  }
  void abandon() noexcept override { network_->agreements.abandon(); }

  const Traffic& traffic() const { return *network_->traffic; }

 private:
  static at::Tensor in_order(const std::vector<at::Tensor>& all) {
    auto sum = all[0].clone();
    for (size_t r = 1; r < all.size(); ++r) sum.add_(all[r]);
    return sum;
  }
  void sends(int to, int64_t bytes) {
    if (to == rank_) return;
    counts_.bytes += bytes;
    network_->traffic->add(network_->numbers[static_cast<size_t>(rank_)], network_->numbers[static_cast<size_t>(to)], bytes);
  }
  using Receive = std::function<void(const std::vector<at::Tensor>&)>;
  struct Sent final : Collective {
    Sent(Mailbox& mailbox, int64_t number, Receive receive) : mailbox_(mailbox), number_(number), receive_(std::move(receive)) {}
    bool done() override { return mailbox_.complete(number_); }
    void wait() override { receive_(mailbox_.take(number_)); }

   private:
    Mailbox& mailbox_;
    int64_t number_;
    Receive receive_;
  };

  std::unique_ptr<Collective> send(Mailbox& mailbox, int64_t& count, const at::Tensor& in, Receive receive) {
    const auto number = count++;
    mailbox.post(number, rank_, in.clone());
    return std::make_unique<Sent>(mailbox, number, std::move(receive));
  }

  std::shared_ptr<Network> network_;
  int rank_;
  Counts counts_;
  size_t parts_ = 0;
};

}  // namespace npu_train::testing
