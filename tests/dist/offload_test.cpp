// The optimizer on the host: it works on copies of the parameters that a rank updates. tests/train/offloaded_step_test.cpp uses a device.
#include "npu_train/dist/offload.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <map>

#include "testing.hpp"

#include "dist/in_process_group.hpp"
#include "npu_train/dist/data_parallel.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::vector<at::Tensor> values_before(const ParameterSet& parameters) {
  std::vector<at::Tensor> out;
  for (const auto& p : parameters) out.push_back(p.value.detach().clone());
  return out;
}

// Updates by plain gradient descent, in place of an optimizer.
void descend_on_host(const ParameterSet& updated) {
  const at::NoGradGuard no_grad;
  for (const auto& p : updated)
    if (p.value.grad().defined()) p.value.sub_(p.value.grad() * 0.1);
}

// Counts the calls that OffloadedStrategy passes on.
class CountingStrategy final : public Strategy, public Ranks, ErrorFeedback, ShardedUnits {
 public:
  mutable std::map<std::string, int> calls;

  Ranks& ranks() const override { return const_cast<CountingStrategy&>(*this); }
  Sharding sharding() const override { return count("sharding", Sharding::Parameters); }
  ErrorFeedback* error_feedback() override { return this; }
  ShardedUnits* units() override { return this; }
  bool adds_in_order() const override { return count("adds_in_order", true); }
  bool capturable() const override { return count("capturable", true); }
  ParameterSet setup(const ParameterSet& trained) override { return count("setup", trained); }
  void broadcast(const std::vector<at::Tensor>&) override { count("broadcast", 0); }
  void gather_slices(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&) override { count("gather_slices", 0); }
  bool writes_slices() const override { return count("writes_slices", false); }
  void begin_window(int64_t) override { count("begin_window", 0); }
  bool begin_forward(bool has_batch) override { return count("begin_forward", !has_batch); }
  void backward(const at::Tensor&, bool) override { count("backward", 0); }
  void end_micro_batch() override { count("end_micro_batch", 0); }
  WindowWeight finish_gradients(const WindowWeight&) override { return count("finish_gradients", WindowWeight{.loss = 9}); }
  ReductionTimes reduction_times() const override { return count("reduction_times", ReductionTimes{.parameters = 2}); }
  void add_over_ranks(at::Tensor& own) override {
    count("add_over_ranks", 0);
    own.add_(1);
  }
  void agree(StepAgreement&) override { count("agree", 0); }
  void finish_step() override { count("finish_step", 0); }
  unsigned decide(unsigned wanted) override { return count("decide", wanted + 1); }

  int rank() const override { return count("rank", 3); }

 private:
  CompressionState state() const override { return count("state", CompressionState{}); }
  void load(const State&) override { count("load", 0); }
  void set_gradient_scale(double scale) override { count("set_gradient_scale", scale); }
  void set(std::vector<ParameterUnit> units) override { count("set", units.size()); }
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x) override {
    count("run", unit);
    return forward(x);
  }
  template <class T>
  T count(const char* call, T answer) const {
    ++calls[call];
    return answer;
  }
};

}  // namespace

TEST_CASE("the optimizer is given copies; gradients go to them, and what it makes of them goes back") {
  const auto weight = at::rand({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  const auto bias = at::rand({3}).set_requires_grad(true), unused = at::rand({2}).set_requires_grad(true);
  ParameterSet trained({{.name = "weight", .value = weight, .group = 1}, {.name = "bias", .value = bias}});
  trained.add({.name = "unused", .value = unused});
  trained.add({.name = "tied", .value = bias});
  OffloadedStrategy strategy(std::make_shared<SingleDeviceStrategy>());
  const auto copies = strategy.setup(trained);
  REQUIRE(copies.size() == 3);
  CHECK((copies.aliases() == trained.aliases()));
  CHECK((copies[0].name == "weight" && copies[0].group == 1 && copies[0].value.strides() == weight.strides()));
  for (size_t i = 0; i < copies.size(); ++i) {
    CHECK_FALSE(copies[i].value.is_alias_of(trained[i].value));
    CHECK(at::equal(copies[i].value, trained[i].value));
    CHECK((copies[i].value.requires_grad() && copies[i].value.is_leaf()));
    CHECK(on_device(strategy, copies)[i].value.is_same(trained[i].value));
  }
  CHECK(&on_device(SingleDeviceStrategy(), copies) == &copies);

  const auto before = values_before(trained);
  for (int step = 1; step <= 2; ++step) {
    strategy.begin_window(1);
    strategy.backward((weight * 2).sum() + (bias * step).sum(), /*last=*/true);
    CHECK(strategy.finish_gradients({.loss = 4}).loss == 4);
    for (const auto& p : trained) CHECK_FALSE(p.value.grad().defined());
    CHECK(at::equal(copies[0].value.grad(), at::full_like(weight, 2)));
    CHECK(at::equal(copies[1].value.grad(), at::full_like(bias, step)));
    CHECK_FALSE(copies[2].value.grad().defined());
    descend_on_host(copies);
    strategy.finish_step();
  }
  CHECK(at::allclose(weight, before[0] - 0.4));
  CHECK(at::allclose(bias, before[1] - 0.3));
  CHECK(at::equal(unused, before[2]));
  for (size_t i = 0; i < copies.size(); ++i) CHECK(at::equal(copies[i].value, trained[i].value));

  strategy.begin_window(1);
  strategy.backward(unused.sum(), /*last=*/true);  // in a window that is abandoned
  strategy.begin_window(1);
  strategy.backward(bias.sum(), /*last=*/true);
  strategy.finish_gradients({});
  CHECK_FALSE(copies[2].value.grad().defined());
  CHECK_FALSE(copies[0].value.grad().defined());

  weight.detach().fill_(3);
  strategy.parameters_loaded();
  CHECK(at::equal(copies[0].value, weight));
  CHECK(copies[0].value.requires_grad());
}

TEST_CASE("with every division ranks have the bits of the same steps without copies") {
  constexpr int kRanks = 4;
  for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters}) {
    CAPTURE(static_cast<int>(sharding));
    const auto network = std::make_shared<Network>(kRanks);
    on_ranks(network->agreements, [&](int rank) {
      std::vector<std::vector<at::Tensor>> ends;
      for (const bool offloads : {false, true}) {
        const auto linear = [](std::vector<int64_t> sizes, double slope) {
          const auto numel = c10::multiply_integers(sizes);
          return (at::arange(numel, at::kFloat) * slope - 0.3).view(sizes).set_requires_grad(true);
        };
        const auto weight = linear({40, 5}, 0.01), bias = linear({40}, 0.02), tail = linear({3}, 0.1);
        ParameterSet trained({{.name = "weight", .value = weight}, {.name = "bias", .value = bias}, {.name = "tail", .value = tail}});
        const DistOptions options{.shard_size = "2", .bucket_mib = 0.001};
        const auto divided = sharding == Sharding::None ? DistOptions{.bucket_mib = 0.001} : options;
        std::shared_ptr<Strategy> strategy =
            std::make_shared<DataParallelStrategy>(std::make_shared<InProcessGroup>(network, rank), divided, at::kCPU, sharding);
        if (offloads) strategy = std::make_shared<OffloadedStrategy>(strategy);
        const auto updated = strategy->setup(trained);
        for (int step = 0; step < 3; ++step) {
          strategy->begin_window(1);
          strategy->begin_forward(true);
          strategy->backward(((weight * weight).sum() + (bias * step).sum()) * (rank + 1), /*last=*/true);
          strategy->finish_gradients({.loss = 1, .samples = 1, .micro_batches = 1});
          descend_on_host(updated);
          strategy->finish_step();
          updated.zero_grad();
          trained.zero_grad();
        }
        std::vector<at::Tensor> whole;
        for (const auto* t : {&weight, &bias, &tail}) whole.push_back(at::empty(t->sizes()));
        std::vector<at::Tensor> slices;
        for (const auto& p : updated) slices.push_back(p.value.detach());
        strategy->gather_slices(slices, whole);
        ends.push_back(whole);
        if (offloads && strategy->shards()) {
          CHECK(updated[0].is_slice());
          CHECK(updated[0].is_same_part(on_device(*strategy, updated)[0]));
        }
        if (offloads && !strategy->shards_parameters())
          for (size_t i = 0; i < 3; ++i) CHECK(at::equal(trained[i].value, whole[i]));
      }
      for (size_t i = 0; i < ends[0].size(); ++i) {
        CAPTURE(static_cast<int>(sharding));
        CAPTURE(i);
        CHECK(at::equal(ends[0][i], ends[1][i]));
      }
      CHECK_FALSE(at::equal(ends[0][0], at::arange(200, at::kFloat).view({40, 5}) * 0.01 - 0.3));
    });
  }
}

TEST_CASE("slices that were loaded through the complete parameters, and on their own") {
  for (const auto sharding : {Sharding::Optimizer, Sharding::Parameters}) {
    const auto weight = at::rand({130}).set_requires_grad(true);
    const auto group = std::make_shared<InProcessGroup>(std::make_shared<Network>(1), 0);
    OffloadedStrategy strategy(std::make_shared<DataParallelStrategy>(group, DistOptions(), at::kCPU, sharding));
    const auto copies = strategy.setup(ParameterSet({{.name = "weight", .value = weight}}));
    (sharding == Sharding::Optimizer ? weight : strategy.on_device()[0].value).detach().fill_(2);
    strategy.parameters_loaded();
    CHECK(at::equal(copies[0].value, at::full({130}, 2.0)));
  }
}

TEST_CASE("everything else is done by the other strategy") {
  const auto inner = std::make_shared<CountingStrategy>();
  OffloadedStrategy strategy(inner);
  const auto x = at::ones({2});
  CHECK(strategy.ranks().rank() == 3);
  CHECK(strategy.sharding() == Sharding::Parameters);
  strategy.error_feedback()->set_gradient_scale(2);
  strategy.error_feedback()->load(CompressionState(strategy.error_feedback()->state()).shared);
  strategy.units()->set({});
  CHECK(strategy.units()
            ->run(
                1, [](const at::Tensor& given) { return given * 2; }, x)
            .sum()
            .item<double>() == 4);
  CHECK(strategy.adds_in_order());
  CHECK(strategy.capturable());
  CHECK(strategy.setup({}).empty());
  strategy.broadcast({});
  strategy.gather_slices({}, {});
  CHECK_FALSE(strategy.writes_slices());
  strategy.begin_window(1);
  CHECK_FALSE(strategy.begin_forward(true));
  strategy.backward(x, true);
  strategy.end_micro_batch();
  CHECK(strategy.finish_gradients({}).loss == 9);
  CHECK(strategy.reduction_times().parameters == 2);
  auto added = at::zeros({1});
  strategy.add_over_ranks(added);
  CHECK(added.item<double>() == 1);
  StepAgreement step;
  strategy.agree(step);
  strategy.finish_step();
  CHECK(strategy.decide(1) == 2);
  CHECK(inner->calls.size() == 23);
  for (const auto& call : inner->calls) {
    CAPTURE(call.first);
    CHECK(call.second >= 1);
  }
}

TEST_CASE("without a strategy") {
  const auto error = error_of([] { OffloadedStrategy strategy(nullptr); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "is given no strategy; hint: SingleDeviceStrategy for one process"));
}
