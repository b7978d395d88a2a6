#include "testing.hpp"

#include "npu_train/tools/plan/step_time.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using doctest::Approx;

namespace {

// A forward pass of 1 s and a backward pass of 2 s, with two blocks of 512,000 bytes of parameters, each in a bucket of its own. Between
// two ranks the link needs 0.5 s to exchange or gather one of them.
StepWork two_blocks() {
  StepWork out{.flops = 1e9,
               .parameters = {{.elements = 128'000, .ready = 1, .unit = 1}, {.elements = 128'000, .ready = 0.5, .unit = 2}},
               .units = {0.5, 0.5}};
  out.dist.bucket_mib = 0.001;
  return out;
}

const Cluster kSlowLink{.link = {.bytes_per_second = 512'000}};
const StepRates kExact{.flops = 1e9, .memory = 1e30, .link_share = 1};

double seconds(const StepWork& work, const Placement& placement, const Cluster& cluster = kSlowLink, const StepRates& rates = kExact) {
  return step_time(work, placement, cluster, rates).seconds;
}

}  // namespace

TEST_CASE("steps that were calculated by hand") {
  auto work = two_blocks();
  CHECK(seconds(work, {}) == Approx(3));
  // The backward pass runs from 1 to 3. The first exchange begins at 2 and its gather at 2.5; the second exchange begins at 3, and its
  // gather ends at 4.
  CHECK(seconds(work, {.strategy = "ddp", .ranks = 2}) == Approx(4));
  // Both exchanges have ended at 3.5; parameters are gathered after the step.
  CHECK(seconds(work, {.strategy = "zero1", .ranks = 2}) == Approx(4.5));
  CHECK(seconds(work, {.strategy = "zero2", .ranks = 2}) == Approx(4.5));
  // The forward pass runs from 0.5, when the first block has arrived, to 1.5; the first block is gathered again meanwhile; exchanges begin
  // at 2.5 and 3.5.
  CHECK(seconds(work, {.strategy = "zero3", .ranks = 2}) == Approx(4));
  const auto time = step_time(work, {.strategy = "ddp", .ranks = 2}, kSlowLink, kExact);
  CHECK(time.compute == Approx(3));
  CHECK(time.waiting() == Approx(0.25));
  CHECK(time.communication == Approx(2));
  CHECK(time.sent_bytes == Approx(1'024'000));

  work.dist.overlap = false;
  CHECK(seconds(work, {.strategy = "ddp", .ranks = 2}) == Approx(5));
  work.dist = {.reduction = "native", .bucket_mib = 0.001};
  CHECK(seconds(work, {.strategy = "ddp", .ranks = 2}) == Approx(4));  // 1 s each, at 2 and 3
}

TEST_CASE("what checkpointing computes again takes its time in the backward pass") {
  auto work = two_blocks();
  work.recomputed = 0.5;  // the first of two equal blocks
  CHECK(seconds(work, {}) == Approx(3.5));
  // The backward pass runs from 1 to 3.5. The first exchange begins at 2.25 and its gather at 2.75; the second begins at 3.5, and its
  // gather ends at 4.5.
  CHECK(seconds(work, {.strategy = "ddp", .ranks = 2}) == Approx(4.5));
  CHECK(step_time(work, {.strategy = "zero3", .ranks = 2}, kSlowLink, kExact).compute == Approx(3.5));
}

TEST_CASE("between devices shards are scattered sums, and agreements take the time of TCP") {
  auto work = two_blocks();
  work.between_devices = true;
  const auto time = [&](const Placement& placement) { return step_time(work, placement, kSlowLink, kExact); };
  // Each block has 512,000 bytes. Each of two ranks scatters half of it and gathers it twice; with zero3 it gathers the last block once.
  CHECK(time({.strategy = "zero2", .ranks = 2}).sent_bytes == Approx(2 * 256'000 + 2 * 256'000));
  CHECK(time({.strategy = "zero3", .ranks = 2}).sent_bytes == Approx(2 * 256'000 + 3 * 256'000));
  // In groups of two shards, the two ranks that have the same part then add it.
  CHECK(time({.strategy = "zero2", .ranks = 4, .shard_size = 2}).sent_bytes == Approx(2 * 256'000 + 2 * 256'000 + 2 * 256'000));
  work.parameters.clear();
  work.units.clear();
  CHECK(time({.strategy = "ddp", .ranks = 1025}).seconds == Approx(3 + 2 * 1024 * 30e-6));
  auto slow = kSlowLink;
  slow.link.latency = 100e-6;
  CHECK(step_time(work, {.strategy = "ddp", .ranks = 1025}, slow, kExact).seconds == Approx(3 + 2 * 1024 * 100e-6));
}

TEST_CASE("windows of several micro-batches") {
  auto work = two_blocks();
  work.micro_batches = 2;
  CHECK(seconds(work, {}) == Approx(6));
  CHECK(seconds(work, {.strategy = "ddp", .ranks = 2}) == Approx(7));
  CHECK(seconds(work, {.strategy = "zero1", .ranks = 2}) == Approx(7.5));
  CHECK(seconds(work, {.strategy = "zero2", .ranks = 2}) == Approx(7.5));  // the exchange of the first micro-batch is hidden
  CHECK(step_time(work, {.strategy = "zero2", .ranks = 2}, kSlowLink, kExact).sent_bytes == Approx(3 * 512'000));
  CHECK(step_time(work, {.strategy = "zero3", .ranks = 2}, kSlowLink, kExact).sent_bytes == Approx(2 * 5 * 256'000));
  work.dist.reduction = "native";  // sends once in a window
  CHECK(step_time(work, {.strategy = "zero3", .ranks = 2}, kSlowLink, kExact).sent_bytes == Approx((2 * 3 + 2 * 2) * 256'000));
}

TEST_CASE("shards within groups") {
  const auto work = two_blocks();
  // Gathers of blocks between two ranks take as long as before. Exchanges among four ranks begin at 2.5 and 3.5 and take 0.75 s; the
  // sums of each shard take 0.25 s.
  CHECK(seconds(work, {.strategy = "zero3", .ranks = 4, .shard_size = 2}) == Approx(4.75));
  auto cluster = kSlowLink;
  cluster.per_machine = 2;
  cluster.local = {.bytes_per_second = 512e6};
  const StepCall within{.kind = StepCall::Kind::AllGather, .bytes = 512'000, .ranks = 2};
  const StepCall across{.kind = StepCall::Kind::AllGather, .bytes = 512'000, .ranks = 2, .stride = 2};
  const Placement by_two{.strategy = "zero3", .ranks = 4, .shard_size = 2};
  CHECK(call_seconds(within, by_two, cluster, kExact, false) == Approx(0.0005));
  CHECK(call_seconds(across, by_two, cluster, kExact, false) == Approx(0.5));
  // Two of the four parts leave the machine.
  CHECK(call_seconds({.kind = StepCall::Kind::AllToAll, .bytes = 512'000, .ranks = 4}, by_two, cluster, kExact, false) == Approx(0.5));
}

TEST_CASE("groups of ranks") {
  const auto work = two_blocks();
  const Placement by_two{.strategy = "ddp", .ranks = 4, .group_size = 2};
  // Gloo with equal links: a reduction inside takes 1 s, and the first rank only receives in its second half; the sum between groups takes
  // 1 s; the way back takes 1 s, in which the first rank only sends. The first bucket is added inside from 2 to 3, and the second one until
  // 4. Between groups, the first bucket is added until 5 and the second one until 6; in the last half second the first rank only receives.
  // The ways back run from 5.5 to 6.5 and from 6.5 to 7.5.
  CHECK(seconds(work, by_two) == Approx(7.5));
  const auto time = step_time(work, by_two, kSlowLink, kExact);
  CHECK(time.sent_bytes == Approx(2 * (256'000 + 512'000 + 512'000)));
  CHECK(time.between_bytes == Approx(2 * 512'000));
  CHECK(time.communication == Approx(5.5));
  // A faster link inside is separate from that between machines, so only the sums between machines count, from 2.5 and 3.5.
  auto cluster = kSlowLink;
  cluster.per_machine = 2;
  cluster.local = {.bytes_per_second = 512e6};
  CHECK(seconds(work, by_two, cluster) == Approx(4.002));
  // Groups of one rank, and one group of all, are the sum over all ranks.
  auto native = work;
  native.dist.reduction = "native";
  for (const int size : {1, 4})
    CHECK(seconds(work, {.strategy = "ddp", .ranks = 4, .group_size = size}) == Approx(seconds(native, {.strategy = "ddp", .ranks = 4})));
  // Between devices, sums wait for the end of the backward pass, so the second bucket's way between machines begins after the first one's.
  auto devices = work;
  devices.between_devices = true;
  CHECK(seconds(devices, by_two, cluster) == Approx(5.001 + 2 * 3 * 30e-6));  // with two agreements of four ranks over TCP
  CHECK(step_time(devices, by_two, cluster, kExact).sent_bytes == Approx(2 * (512'000 + 512'000)));
}

TEST_CASE("the calls of groups") {
  const Placement by_eight{.strategy = "ddp", .ranks = 64, .group_size = 8};
  const StepCall inside{.kind = StepCall::Kind::Reduce, .bytes = 512'000, .ranks = 8};
  const StepCall back{.kind = StepCall::Kind::Distribute, .bytes = 512'000, .ranks = 8};
  const StepCall between{.kind = StepCall::Kind::AllReduce, .bytes = 512'000, .ranks = 8, .stride = 8, .of_leaders = true};
  Cluster cluster{.link = {.bytes_per_second = 512'000, .latency = 0.01}, .local = {.bytes_per_second = 5'120'000, .latency = 0.001}};
  const auto time = [&](const StepCall& call, bool between_devices) {
    return call_seconds(call, by_eight, cluster, kExact, between_devices);
  };
  cluster.per_machine = 8;
  CHECK(time(inside, false) == Approx(8 * 0.001 + 2 * 0.1 * 7 / 8));  // Gloo uses a ring and then sends the parts to the first rank
  CHECK(time(back, false) == Approx(3 * 0.001 + 3 * 0.1));            // Gloo uses a tree
  CHECK(time(inside, true) == Approx(7 * 0.001 + 0.1));
  CHECK(time(back, true) == Approx(7 * 0.001 + 0.1));
  CHECK(time(between, false) == Approx(14 * 0.01 + 2 * 7.0 / 8));
  // Machines of 4 ranks divide the groups. With machines of 12, the second group is on two of them. Machines of 16 contain two groups
  // each, so every other first rank is on another machine.
  for (const int per_machine : {4, 12}) {
    cluster.per_machine = per_machine;
    CHECK(time(back, false) == Approx(3 * 0.01 + 3));
  }
  cluster.per_machine = 16;
  CHECK(time(back, false) == Approx(3 * 0.001 + 3 * 0.1));
  CHECK(time(between, false) == Approx(14 * 0.01 + 2 * 7.0 / 8));
  cluster.per_machine = 64;
  CHECK(time(between, false) == Approx(14 * 0.001 + 0.2 * 7 / 8));
}

TEST_CASE("messages, the optimizer, busy cores and what a link reaches") {
  auto work = two_blocks();
  const Placement ddp{.strategy = "ddp", .ranks = 2};
  Cluster cluster{.link = {.bytes_per_second = 1e30, .latency = 0.001}};
  // The last bucket's exchange and gather, and two agreements, are not hidden.
  CHECK(seconds(work, ddp, cluster) == Approx(3.004));
  auto rates = kExact;
  rates.message = 0.001;
  CHECK(seconds(work, ddp, cluster, rates) == Approx(3.008));

  work.state_bytes = 2'048'000;
  rates = kExact;
  rates.memory = 1e7;
  CHECK(seconds(work, {}, cluster, rates) == Approx(3 + (3 * 1.024e6 + 2 * 2.048e6) / 1e7));
  const auto sharded = step_time(work, {.strategy = "zero1", .ranks = 4}, cluster, rates);
  CHECK(sharded.compute == Approx(3 + 2 * 1.024e6 / 1e7 + (3 * 1.024e6 + 2 * 2.048e6) / 4e7));

  rates = kExact;
  rates.contention = 0.25;
  cluster.load = 2;
  CHECK(seconds(work, {}, cluster, rates) == Approx(3 * 2 * 1.25));
  cluster.load = 0.5;
  CHECK(seconds(work, {}, cluster, rates) == Approx(3 * 1.125));

  rates = kExact;
  rates.link_share = 0.5;
  CHECK(seconds(work, ddp, kSlowLink, rates) == Approx(6));  // 1 s each: from 2 to 6
  const Placement three{.strategy = "ddp", .ranks = 3};
  const auto call_of = [](StepCall::Kind kind, int ranks) { return StepCall{.kind = kind, .bytes = 512'000, .ranks = ranks}; };
  CHECK(call_seconds(call_of(StepCall::Kind::AllToAll, 2), ddp, kSlowLink, kExact, false) == Approx(0.5));
  CHECK(call_seconds(call_of(StepCall::Kind::AllToAll, 2), ddp, kSlowLink, kExact, true) == Approx(0.5));
  CHECK(call_seconds(call_of(StepCall::Kind::AllGather, 2), ddp, kSlowLink, kExact, false) == Approx(0.5));
  CHECK(call_seconds(call_of(StepCall::Kind::AllToAll, 3), three, kSlowLink, kExact, false) == Approx(2.0 / 3));
  CHECK(call_seconds(call_of(StepCall::Kind::AllGather, 3), three, kSlowLink, kExact, false) == Approx(2.0 / 3));
  const StepCall reduce{.kind = StepCall::Kind::AllReduce, .bytes = 512'000, .ranks = 2};
  CHECK(call_seconds(reduce, ddp, kSlowLink, kExact, false) == Approx(1));
}

TEST_CASE("between devices many ranks reduce by a tree") {
  const Cluster cluster{.link = {.bytes_per_second = 1e9, .latency = 1e-5}};
  const StepCall reduce{.kind = StepCall::Kind::AllReduce, .bytes = 1000, .ranks = 1024};
  const Placement ddp{.strategy = "ddp", .ranks = 1024};
  CHECK(call_seconds(reduce, ddp, cluster, kExact, false) == Approx(2 * 1023 * 1e-5 + 2 * 1000.0 * 1023 / 1024 / 1e9));
  CHECK(call_seconds(reduce, ddp, cluster, kExact, true) == Approx(20 * 1e-5 + 2 * 1000.0 / 1e9));
}

TEST_CASE("slower links and more ranks never make a step shorter") {
  const auto work = two_blocks();
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    CAPTURE(strategy);
    double before = 0;
    for (const int ranks : {2, 4, 8, 64}) {
      const double now = seconds(work, {.strategy = strategy, .ranks = ranks});
      CHECK(now >= before);
      before = now;
    }
    for (const double speed : {1e9, 1e6, 1e5, 1e4}) {
      const double now = seconds(work, {.strategy = strategy, .ranks = 4}, {.link = {.bytes_per_second = speed}});
      CHECK((speed == 1e9 || now > before));
      CHECK(now >= 3);
      before = now;
    }
  }
  CHECK(has(error_of([&] { seconds(work, {.strategy = "ddp", .ranks = 2}, {}); }).what(), "without the speed of the link"));
}
