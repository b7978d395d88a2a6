#include "npu_train/tools/plan/step_time.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr double kBackward = 2;        // FLOPs of a backward pass over those of a forward pass
constexpr double kOptimizerReads = 3;  // passes over a parameter: it, its gradient, and it again when written
constexpr double kStateReads = 2;

double share_sent(const StepCall& call) {
  const double sent = static_cast<double>(call.bytes) * (call.ranks - 1) / call.ranks;
  return call.kind == StepCall::Kind::AllReduce ? 2 * sent : sent;
}

// One rank's connection: what is given to it travels in the order of the calls.
struct Connection {
  double free = 0, busy = 0;
  double send(double ready, double seconds) {
    free = std::max(ready, free) + seconds;
    busy += seconds;
    return free;
  }
};

// Plays a window on one rank; all ranks are alike.
class Player {
 public:
  Player(const StepWork& work, const Placement& placement, const StepCalls& calls, const Cluster& cluster, const StepRates& rates)
      : work_(work), placement_(placement), calls_(calls), cluster_(cluster), rates_(rates) {
    const double slow = std::max(1.0, cluster.load) * (1 + rates.contention * std::min(1.0, cluster.load));
    forward_ = work.flops * static_cast<double>(work.batch) / rates.flops * slow;
    memory_ = rates.memory / slow;
    carrying_ = rates.carrying * std::min(1.0, cluster.load) * slow;
    for (const auto& bucket : calls.buckets) bucket_bytes_ += static_cast<double>(bucket.bytes);
    // What computes the sums and what the kernel copies is spread over the backward pass.
    reduced_ = bucket_bytes_ * (calls_.buckets.empty() || calls_.buckets[0].exchange.kind == StepCall::Kind::AllReduce ? 1 : 2) / memory_;
    for (const auto& bucket : calls.buckets) reduced_ += carrying_ * share_sent(bucket.exchange);
    const auto in_shards = placement.strategy == "single" || placement.strategy == "ddp" ? 1.0 : placement.shards();
    optimizer_ = (kOptimizerReads * work.parameter_bytes() + kStateReads * work.state_bytes) / in_shards / memory_;
  }

  StepTime play() {
    if (!calls_.units.empty()) bring(0);
    for (int64_t m = 0; m < work_.micro_batches; ++m) {
      const bool last = m + 1 == work_.micro_batches;
      forward();
      backward(last || calls_.every_micro_batch, last);
    }
    now_ = std::max(now_, arrived_);
    now_ += static_cast<double>(calls_.agreements) * (placement_.ranks - 1) * (cluster_.link.latency + rates_.message);
    now_ += optimizer_;
    for (const auto& call : calls_.after) {
      now_ = send(call, now_);
      now_ += carrying_ * share_sent(call);
      compute_ += carrying_ * share_sent(call);
    }
    return {.seconds = now_, .compute = compute_ + optimizer_, .communication = connection_.busy, .sent_bytes = sent_};
  }

 private:
  double send(const StepCall& call, double ready) {
    sent_ += share_sent(call);
    return connection_.send(ready, call_seconds(call, placement_, cluster_, rates_, work_.between_devices));
  }

  double send(const std::vector<StepCall>& calls, double ready) {
    for (const auto& call : calls) ready = std::max(ready, send(call, ready));
    return ready;
  }

  void bring(size_t unit) { now_ = std::max(now_, send(calls_.units[unit], now_)); }

  void compute(double seconds) {
    now_ += seconds;
    compute_ += seconds;
  }

  void forward() {
    const auto& units = work_.units;
    if (calls_.units.empty() || units.empty()) return compute(forward_);
    double root = 1, next = send(calls_.units[1], now_);
    for (size_t u = 0; u < units.size(); ++u) {
      now_ = std::max(now_, next);
      if (u + 1 < units.size()) next = send(calls_.units[u + 2], work_.dist.overlap ? now_ : now_ + units[u] * forward_);
      compute(units[u] * forward_);
      root -= units[u];
    }
    compute(std::max(0.0, root) * forward_);
  }

  void backward(bool sends, bool last) {
    now_ = std::max(now_, arrived_);  // of the micro-batch before
    calls_.units.empty() ? complete_backward(sends, last) : backward_by_units(last);
  }

  // Parameters are complete; buckets are sent as they become complete.
  void complete_backward(bool sends, bool last) {
    const double begin = now_;
    compute(kBackward * forward_ + (sends ? reduced_ : 0));
    if (!sends) return;
    const bool with_backward = work_.dist.overlap;
    const bool folds_early = !work_.between_devices || placement_.strategy != "ddp";
    const auto complete = [&](size_t b) { return with_backward ? begin + calls_.buckets[b].ready * (now_ - begin) : now_; };
    std::vector<double> exchanged(calls_.buckets.size());
    size_t sent = 0, gathered = 0;
    while (sent < calls_.buckets.size() || (last && gathered < calls_.buckets.size())) {
      const double exchange_at = sent < calls_.buckets.size() ? complete(sent) : INFINITY;
      const double gather_at = last && gathered < sent ? std::max(exchanged[gathered], folds_early ? 0 : now_) : INFINITY;
      if (exchange_at <= gather_at) {
        arrived_ = std::max(arrived_, exchanged[sent] = send(calls_.buckets[sent].exchange, exchange_at));
        ++sent;
      } else {
        arrived_ = std::max(arrived_, send(calls_.buckets[gathered++].gather, gather_at));
      }
    }
  }

  // Units are brought while the one behind computes; their gradients are sent when they are complete.
  void backward_by_units(bool last) {
    const auto& units = work_.units;
    const bool overlap = work_.dist.overlap, sends_early = overlap && !work_.between_devices;
    double root = 1, next = now_;
    for (const double share : units) root -= share;
    compute(std::max(0.0, root) * kBackward * forward_);
    std::vector<double> complete(units.size() + 1, now_);
    for (size_t u = units.size(); u > 0; --u) {
      now_ = std::max(now_, next);
      const double seconds = units[u - 1] * (kBackward * forward_) + reduced_ / static_cast<double>(units.size());
      if (u > 1) next = send(calls_.units[u - 1], overlap ? now_ : now_ + seconds);
      compute(seconds);
      if (sends_early) exchange(u, now_);
    }
    if (units.empty()) compute(reduced_);
    for (size_t u = sends_early ? 1 : units.size() + 1; u > 0; --u) exchange(u - 1, now_);
    if (last) {
      double ready = arrived_;
      for (const auto& bucket : calls_.buckets) ready = send(bucket.gather, ready);
      arrived_ = std::max(arrived_, ready);
    }
  }

  void exchange(size_t unit, double ready) {
    for (const auto& bucket : calls_.buckets)
      if (bucket.unit == unit) arrived_ = std::max(arrived_, send(bucket.exchange, ready));
  }

  const StepWork& work_;
  const Placement& placement_;
  const StepCalls& calls_;
  const Cluster& cluster_;
  const StepRates& rates_;
  Connection connection_;
  double forward_ = 0, reduced_ = 0, optimizer_ = 0, memory_ = 1, carrying_ = 0, bucket_bytes_ = 0;
  double now_ = 0, arrived_ = 0, compute_ = 0, sent_ = 0;
};

}  // namespace

double call_seconds(const StepCall& call, const Placement& placement, const Cluster& cluster, const StepRates& rates,
                    bool between_devices) {
  using Kind = StepCall::Kind;
  const auto& local = cluster.local.bytes_per_second > 0 ? cluster.local : cluster.link;
  const int per_machine = std::min(cluster.per_machine, placement.ranks);
  // Of the ranks that take part, those of one machine: neighbours, or those of every group of shards that is within it.
  const int near = call.is_strided ? std::max(1, per_machine / placement.shards()) : std::min(per_machine, call.ranks);
  const bool leaves = near < call.ranks;
  const double n = call.ranks, bytes = static_cast<double>(call.bytes);
  const auto time = [&](const LinkSpeed& link, double messages, double sent) {
    return messages * (link.latency + rates.message) + sent / (rates.link_share * link.bytes_per_second);
  };
  if (call.kind == Kind::AllToAll) {
    const double here = time(local, near - 1, bytes * (near - 1) / n);
    return leaves ? std::max(here, time(cluster.link, n - near, bytes * (n - near) / n)) : here;
  }
  // A ring is as fast as its slowest link.
  const auto& slowest = leaves ? cluster.link : local;
  const double passes = call.kind == Kind::AllReduce ? 2 : 1;
  const double ring = time(slowest, passes * (n - 1), passes * bytes * (n - 1) / n);
  if (call.kind != Kind::AllReduce || !between_devices) return ring;
  return std::min(ring, time(slowest, 2 * std::ceil(std::log2(n)), 2 * bytes));  // NCCL and HCCL choose a tree for many ranks
}

StepTime step_time(const StepWork& work, const Placement& placement, const StepCalls& calls, const Cluster& cluster,
                   const StepRates& rates) {
  check(placement.ranks == 1 || cluster.link.bytes_per_second > 0, ErrorKind::Usage, "plan", placement.ranks,
        " ranks without the speed of the link between them");
  check(rates.flops > 0 && rates.memory > 0 && rates.link_share > 0, ErrorKind::Usage, "plan", "rates must be positive");
  return Player(work, placement, calls, cluster, rates).play();
}

StepTime step_time(const StepWork& work, const Placement& placement, const Cluster& cluster, const StepRates& rates) {
  return step_time(work, placement, step_calls(work, placement), cluster, rates);
}

}  // namespace npu_train
