// Ranks that are threads of one process: strategies of several ranks for tests of the step and of the loop, without a network.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exchange.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/dist/strategy.hpp"

namespace npu_train::testing {

/// The communication of the threads between steps.
class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(std::shared_ptr<Exchange> exchange, int rank) : exchange_(std::move(exchange)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return exchange_->ranks(); }

  std::vector<double> sums(std::vector<double> own) override {
    ++asked;
    std::vector<double> out(own.size());
    for (const auto& m : exchange_->all(rank_, {.call = "sums", .numbers = std::move(own)})) {
      check(m.numbers.size() == out.size(), ErrorKind::Peer, "ThreadRanks", "ranks sum ", m.numbers.size(), " and ", out.size(),
            " numbers");
      for (size_t i = 0; i < out.size(); ++i) out[i] += m.numbers[i];
    }
    return out;
  }
  std::string from_main(std::string own) override { return exchange_->all(rank_, {.call = "from_main", .text = std::move(own)})[0].text; }

  void main_first(const std::function<void()>& work) override {
    if (rank_ == 0) work();
    barrier();
    if (rank_ != 0) work();
  }
  std::vector<std::string> gather(const std::string& own) override {
    std::vector<std::string> out;
    for (const auto& m : exchange_->all(rank_, {.call = "gather", .text = own})) out.push_back(m.text);
    return out;
  }
  at::Tensor gather(const at::Tensor& own) override {
    std::vector<at::Tensor> out;
    for (const auto& m : exchange_->all(rank_, {.call = "gather", .tensors = {own}})) out.push_back(m.tensors[0]);
    return at::stack(out);
  }
  void barrier() override { exchange_->all(rank_, {.call = "barrier"}); }
  void abandon() noexcept override { exchange_->abandon(); }

  int asked = 0;  ///< calls of sums()

 private:
  std::shared_ptr<Exchange> exchange_;
  int rank_;
};

/// A rank with all parameters and all gradients, as with DistributedDataParallel. Sums are computed in rank order.
class ReplicatedRank : public Strategy {
 public:
  ReplicatedRank(std::shared_ptr<Exchange> exchange, int rank) : exchange_(exchange), rank_(rank), ranks_(std::move(exchange), rank) {}
  Ranks& ranks() const override { return ranks_; }
  bool adds_in_order() const override { return true; }
  bool capturable() const override { return false; }

  ParameterSet setup(const ParameterSet& trained) override { return trained_ = trained; }

  void broadcast(const std::vector<at::Tensor>& tensors) override {
    const at::NoGradGuard no_grad;
    Exchange::Message message{.call = "broadcast"};
    for (const auto& t : tensors) message.tensors.push_back(t.detach().clone());
    const auto everyone = exchange_->all(rank_, std::move(message));
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(everyone[0].tensors[i]);
  }

  void begin_window(int64_t) override {}
  void backward(const at::Tensor& loss, bool last) override {
    check(!last_seen_, ErrorKind::Internal, "ReplicatedRank", "a backward after the last one of the window");
    last_seen_ = last;
    loss.backward();
  }

  WindowWeight finish_gradients(const WindowWeight& own) override {
    check(std::exchange(last_seen_, false) || own.loss == 0, ErrorKind::Internal, "ReplicatedRank",
          "the last backward did not say that it is");
    Exchange::Message message{.call = "finish_gradients", .numbers = {own.loss, own.samples, own.micro_batches}};
    for (const auto& p : trained_) message.tensors.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::Tensor());
    WindowWeight out;
    std::vector<at::Tensor> sums(trained_.size());
    for (const auto& m : exchange_->all(rank_, std::move(message))) {
      out.loss += m.numbers[0];
      out.samples += m.numbers[1];
      out.micro_batches += m.numbers[2];
      for (size_t i = 0; i < sums.size(); ++i)
        if (m.tensors[i].defined()) sums[i] = sums[i].defined() ? sums[i].add_(m.tensors[i]) : m.tensors[i].clone();
    }
    for (size_t i = 0; i < sums.size(); ++i) trained_[i].value.mutable_grad() = updates(trained_[i]) ? sums[i] : at::Tensor();
    return out;
  }

  void agree(StepAgreement& step) override {
    const auto copy = [](const at::Tensor& t) { return t.defined() ? t.clone() : at::Tensor(); };
    const auto everyone = exchange_->all(
        rank_,
        {.call = "agree", .tensors = {copy(step.found_inf), copy(step.squares), copy(step.sums)}, .bits = std::exchange(wanted_, 0)});
    if (step.squares.defined()) reduce_squares(everyone, step.squares);
    step.sums.zero_();
    decided_ = 0;
    for (const auto& m : everyone) {
      if (step.found_inf.defined() && m.tensors[0].item<float>() != 0) step.found_inf.fill_(1);
      step.sums.add_(m.tensors[2]);
      decided_ |= m.bits;
    }
  }

  void finish_step() override {}

  unsigned decide(unsigned wanted) override {
    wanted_ = wanted;
    return std::exchange(decided_, 0);
  }

 protected:
  /// Whether the optimizer of this rank updates `p`.
  virtual bool updates(const Parameter&) const { return true; }
  virtual void reduce_squares(const std::vector<Exchange::Message>&, at::Tensor& /*squares*/) {}  // all ranks have all gradients

  std::shared_ptr<Exchange> exchange_;
  int rank_;
  ParameterSet trained_;

 private:
  mutable ThreadRanks ranks_;
  bool last_seen_ = false;
  unsigned wanted_ = 0, decided_ = 0;
};

/// A rank that updates some of the parameters, as in ZeRO: it alone has their gradients and their optimizer state.
class ShardedRank final : public ReplicatedRank {
 public:
  using ReplicatedRank::ReplicatedRank;

  ParameterSet setup(const ParameterSet& trained) override {
    trained_ = trained;
    owners_.clear();
    for (size_t i = 0; i < trained_.size(); ++i) owners_[trained_[i].name] = static_cast<int>(i) % ranks().size();
    return trained_.filter([&](const Parameter& p) { return updates(p); });
  }

  void finish_step() override {
    const at::NoGradGuard no_grad;
    Exchange::Message message{.call = "finish_step"};
    for (const auto& p : trained_) message.tensors.push_back(updates(p) ? p.value.detach().clone() : at::Tensor());
    const auto everyone = exchange_->all(rank_, std::move(message));
    for (size_t i = 0; i < trained_.size(); ++i)
      if (!updates(trained_[i])) trained_[i].value.copy_(everyone[static_cast<size_t>(owners_.at(trained_[i].name))].tensors[i]);
  }

 private:
  bool updates(const Parameter& p) const override { return owners_.at(p.name) == rank_; }
  void reduce_squares(const std::vector<Exchange::Message>& everyone, at::Tensor& squares) override {
    squares.zero_();
    for (const auto& m : everyone) squares.add_(m.tensors[1]);
  }

  std::map<std::string, int> owners_;
};

inline std::shared_ptr<Strategy> make_rank(const std::shared_ptr<Exchange>& exchange, int rank, bool sharded) {
  if (sharded) return std::make_shared<ShardedRank>(exchange, rank);
  return std::make_shared<ReplicatedRank>(exchange, rank);
}

}  // namespace npu_train::testing
