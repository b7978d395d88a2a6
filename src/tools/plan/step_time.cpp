#include "npu_train/tools/plan/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr double kBackward = 2;        // FLOPs of a backward pass, divided by those of a forward pass
constexpr double kOptimizerReads = 3;  // accesses per parameter: weight and gradient are read, the weight is written
constexpr double kStateReads = 2;
constexpr double kTcpLatency = 30e-6;   // seconds for a small message between machines, through both operating systems
constexpr size_t kAllCalls = SIZE_MAX;  // limit for send_buckets(): all calls of each bucket

// Returns the number of rounds of a tree among n ranks.
double rounds_of(double n) { return std::ceil(std::log2(n)); }

// Returns the bytes that are sent by the first rank of a group, which sends the most.
double share_sent(const StepCall& call, bool between_devices) {
  using Kind = StepCall::Kind;
  const double bytes = static_cast<double>(call.bytes), sent = bytes * (call.ranks - 1) / call.ranks;
  if (call.kind == Kind::AllReduce) return 2 * sent;
  if (call.kind == Kind::Reduce) return between_devices ? 0 : sent;
  if (call.kind == Kind::Distribute) return between_devices ? bytes : rounds_of(call.ranks) * bytes;
  return sent;
}

// Returns the share of a call's time in which the first rank sends. It receives all the time, except in a Distribute.
double sending_share(const StepCall& call, bool between_devices) {
  if (call.kind != StepCall::Kind::Reduce) return 1;
  return between_devices ? 0 : 0.5;
}

// The full-duplex connection of one rank; calls use it in the order in which they are made.
class Connection {
 public:
  double send(const StepCall& call, double ready, double seconds, bool between_devices) {
    const double sending = sending_share(call, between_devices) * seconds;
    const double receiving = call.kind == StepCall::Kind::Distribute ? 0 : seconds;
    double end = ready;
    const auto take = [&](double& free, double time) {
      if (time > 0) end = std::max(end, free = std::max(ready, free) + time);
    };
    take(sends_until_, sending);
    take(receives_until_, receiving);
    return end;
  }

 private:
  double sends_until_ = 0, receives_until_ = 0;
};

// Measures the time in which any data are in transit.
class Travelling {
 public:
  void add(double begin, double end) { spans_.emplace_back(begin, end); }
  double seconds() {
    std::sort(spans_.begin(), spans_.end());
    double out = 0, until = 0;
    for (const auto& [begin, end] : spans_) {
      out += std::max(0.0, end - std::max(begin, until));
      until = std::max(until, end);
    }
    return out;
  }

 private:
  std::vector<std::pair<double, double>> spans_;
};

// Returns the number of a call's ranks that are on the same machine.
int ranks_nearby(const StepCall& call, const Placement& placement, const Cluster& cluster) {
  const int per_machine = std::min(cluster.per_machine, placement.ranks);
  return std::min(call.ranks, std::max(1, per_machine / call.stride));
}

// Returns whether a call crosses machines. This is also true if the same call crosses machines only in another group of the same size,
// because all ranks wait for the slowest group.
bool leaves_machine(const StepCall& call, const Placement& placement, const Cluster& cluster) {
  const int near = ranks_nearby(call, placement, cluster);
  const bool is_part = call.stride == 1 && call.ranks < placement.ranks;
  return near < call.ranks || (is_part && cluster.per_machine < placement.ranks && cluster.per_machine % call.ranks != 0);
}

// Simulates a window on one rank. All ranks behave alike, except that in groups, the other ranks wait for the first rank of their group.
class Player {
 public:
  Player(const StepWork& work, const Placement& placement, const StepCalls& calls, const Cluster& cluster, const StepRates& rates)
      : work_(work), placement_(placement), calls_(calls), cluster_(cluster), rates_(rates) {
    const double slow = std::max(1.0, cluster.load) * (1 + rates.contention * std::min(1.0, cluster.load));
    forward_ = work.flops * static_cast<double>(work.batch) / rates.flops * slow;
    memory_ = rates.memory / slow;
    carrying_ = rates.carrying * std::min(1.0, cluster.load) * slow;
    for (const auto& bucket : calls.buckets) bucket_bytes_ += static_cast<double>(bucket.bytes);
    // The time of adding gradients, and of the operating system's copies of sent data, is spread over the backward pass.
    const auto is_native = [](const StepCall& call) {
      return call.kind == StepCall::Kind::AllReduce || call.kind == StepCall::Kind::Reduce;
    };
    reduced_ = bucket_bytes_ * (calls_.buckets.empty() || is_native(calls_.buckets[0].exchange) ? 1 : 2) / memory_;
    for (const auto& bucket : calls.buckets) reduced_ += carrying_ * sent_by(bucket.exchange);
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
    now_ += static_cast<double>(calls_.agreements) * (placement_.ranks - 1) * (agreement_latency() + rates_.message);
    now_ += optimizer_;
    for (const auto& call : calls_.after) {
      now_ = send(call, now_);
      now_ += carrying_ * sent_by(call);
      compute_ += carrying_ * sent_by(call);
    }
    return {.seconds = now_,
            .compute = compute_ + optimizer_,
            .communication = travelling_.seconds(),
            .sent_bytes = sent_,
            .between_bytes = between_};
  }

 private:
  // Agreements use Gloo over TCP, whatever transport carries gradients.
  double agreement_latency() const {
    return work_.between_devices && placement_.ranks > cluster_.per_machine ? std::max(cluster_.link.latency, kTcpLatency)
                                                                            : cluster_.link.latency;
  }
  double sent_by(const StepCall& call) const { return share_sent(call, work_.between_devices); }

  // Calls inside a machine use a separate connection.
  double send(const StepCall& call, double ready) {
    sent_ += sent_by(call);
    if (call.of_leaders) between_ += sent_by(call);
    const double seconds = call_seconds(call, placement_, cluster_, rates_, work_.between_devices);
    auto& connection = leaves_machine(call, placement_, cluster_) ? outside_ : inside_;
    const double end = connection.send(call, ready, seconds, work_.between_devices);
    travelling_.add(end - seconds, end);
    return end;
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
    now_ = std::max(now_, arrived_);  // waits for the sums of the previous micro-batch
    calls_.units.empty() ? complete_backward(sends, last) : backward_by_units(sends, last);
  }

  // Runs the backward pass with complete parameters; buckets are sent as they become complete.
  void complete_backward(bool sends, bool last) {
    const double begin = now_;
    compute((kBackward + work_.recomputed) * forward_ + (sends ? reduced_ : 0));
    if (!sends) return;
    std::vector<double> complete(calls_.buckets.size());
    for (size_t b = 0; b < complete.size(); ++b) complete[b] = work_.dist.overlap ? begin + calls_.buckets[b].ready * (now_ - begin) : now_;
    send_buckets(std::move(complete), last ? kAllCalls : 1);
  }

  // Sends up to `most` calls of each bucket; each call starts after the previous call of its bucket. The call that is ready first is sent
  // first. `ready`: times at which the exchanges of the buckets can start.
  void send_buckets(std::vector<double> ready, size_t most) {
    const auto& buckets = calls_.buckets;
    size_t longest = 1;
    for (const auto& b : buckets) longest = std::max(longest, 1 + b.then.size());
    std::vector<size_t> next(std::min(longest, most));  // next[k]: the next bucket to make its k-th call
    const auto when = [&](size_t k) {
      const bool has_arrived = next[k] < buckets.size() && (k == 0 || next[k] < next[k - 1]);
      return has_arrived ? std::max(ready[next[k]], k == 0 || passes_on_early() ? 0 : now_) : INFINITY;
    };
    for (;;) {
      size_t first = 0;
      for (size_t k = 1; k < next.size(); ++k)
        if (when(k) < when(first)) first = k;
      const double at = when(first);
      if (at == INFINITY) return;
      const auto b = next[first]++;
      if (first > buckets[b].then.size()) continue;
      ready[b] = send(first == 0 ? buckets[b].exchange : buckets[b].then[first - 1], at);
      arrived_ = std::max(arrived_, ready[b]);
    }
  }

  // Returns whether a bucket's later calls may start before the backward pass ends. Between devices, they may not start early if gathers
  // follow, since exchanges and gathers form one sequence.
  bool passes_on_early() const {
    if (!work_.between_devices) return true;
    return placement_.strategy != "ddp" && placement_.group_size == 0 && !Compression::parse(work_.dist.compression).has_error_feedback();
  }

  // Gathers each unit while the previous one computes; gradients of a unit are sent when they are complete.
  void backward_by_units(bool sends, bool last) {
    const auto& units = work_.units;
    const bool overlap = work_.dist.overlap, sends_early = sends && overlap && !work_.between_devices;
    const double reduced = sends ? reduced_ : 0;
    double root = 1, next = now_;
    for (const double share : units) root -= share;
    const double again = root < 1 ? work_.recomputed / (1 - root) : 0;  // recomputed share of the FLOPs of the units
    compute(std::max(0.0, root) * kBackward * forward_);
    for (size_t u = units.size(); u > 0; --u) {
      now_ = std::max(now_, next);
      const double seconds = units[u - 1] * (kBackward + again) * forward_ + reduced / static_cast<double>(units.size());
      if (u > 1) next = send(calls_.units[u - 1], overlap ? now_ : now_ + seconds);
      compute(seconds);
      if (sends_early) exchange(u, now_);
    }
    if (units.empty()) compute(reduced);
    if (!sends) return;
    for (size_t u = sends_early ? 1 : units.size() + 1; u > 0; --u) exchange(u - 1, now_);
    if (last) pass_on();
  }

  void exchange(size_t unit, double ready) {
    for (const auto& bucket : calls_.buckets)
      if (bucket.unit == unit) arrived_ = std::max(arrived_, send(bucket.exchange, ready));
  }

  // Makes the calls that follow the exchanges of all buckets.
  void pass_on() {
    std::vector<double> ready(calls_.buckets.size(), arrived_);
    for (size_t k = 0, longest = 1; k < longest; ++k)
      for (size_t b = 0; b < ready.size(); ++b) {
        const auto& then = calls_.buckets[b].then;
        longest = std::max(longest, then.size());
        if (k < then.size()) arrived_ = std::max(arrived_, ready[b] = send(then[k], ready[b]));
      }
  }

  const StepWork& work_;
  const Placement& placement_;
  const StepCalls& calls_;
  const Cluster& cluster_;
  const StepRates& rates_;
  Connection outside_, inside_;
  Travelling travelling_;
  double forward_ = 0, reduced_ = 0, optimizer_ = 0, memory_ = 1, carrying_ = 0, bucket_bytes_ = 0;
  double now_ = 0, arrived_ = 0, compute_ = 0, sent_ = 0, between_ = 0;
};

}  // namespace

double call_seconds(const StepCall& call, const Placement& placement, const Cluster& cluster, const StepRates& rates,
                    bool between_devices) {
  using Kind = StepCall::Kind;
  const auto& local = cluster.local.bytes_per_second > 0 ? cluster.local : cluster.link;
  const bool leaves = leaves_machine(call, placement, cluster);
  const double n = call.ranks, bytes = static_cast<double>(call.bytes);
  const auto time = [&](const LinkSpeed& link, double messages, double sent) {
    return messages * (link.latency + rates.message) + sent / (rates.link_share * link.bytes_per_second);
  };
  if (call.kind == Kind::AllToAll) {
    const double near = ranks_nearby(call, placement, cluster);
    const double here = time(local, near - 1, bytes * (near - 1) / n);
    return leaves ? std::max(here, time(cluster.link, n - near, bytes * (n - near) / n)) : here;
  }
  // A ring is as fast as its slowest link.
  const auto& slowest = leaves ? cluster.link : local;
  if (between_devices && (call.kind == Kind::Reduce || call.kind == Kind::Distribute)) return time(slowest, n - 1, bytes);  // in a chain
  if (call.kind == Kind::Distribute) return time(slowest, rounds_of(n), rounds_of(n) * bytes);
  if (call.kind == Kind::Reduce) return time(slowest, n, 2 * bytes * (n - 1) / n);  // summed in parts, which the first rank collects
  const double passes = call.kind == Kind::AllReduce ? 2 : 1;
  const double ring = time(slowest, passes * (n - 1), passes * bytes * (n - 1) / n);
  if (call.kind != Kind::AllReduce || !between_devices) return ring;
  return std::min(ring, time(slowest, 2 * rounds_of(n), 2 * bytes));  // NCCL and HCCL choose a tree for many ranks
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
