#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/nn.h>

#include <algorithm>
#include <map>

#include "dist/in_process.hpp"
#include "dist/in_process_group.hpp"
#include "npu_train/base/has_memory.hpp"
#include "npu_train/dist/data_parallel.hpp"
#include "npu_train/dist/gradient_reducer.hpp"
#include "npu_train/dist/strategy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

// Parameters in shards: the bits are those of one process, whatever each rank has to compute, and only a unit or two is in memory.

namespace {

constexpr size_t kLayers = 5;

// Layers of different sizes, and a scale that all of them use.
struct DeepNet {
  std::vector<torch::nn::Linear> layers;
  at::Tensor scale;
  ParameterSet parameters;

  DeepNet() {
    const at::NoGradGuard no_grad;
    scale = at::full({3}, 1.25).requires_grad_(true);
    parameters.add({.name = "scale", .value = scale});
    for (size_t i = 0; i < kLayers; ++i) {
      layers.emplace_back(i == 0 ? 6 : 40 + static_cast<int64_t>(i), 41 + static_cast<int64_t>(i));
      for (const auto& p : layers[i]->named_parameters()) {
        p.value().copy_((torch::arange(p.value().numel(), at::kDouble) * 0.37 + static_cast<double>(i)).sin().reshape(p.value().sizes()));
        parameters.add({.name = c10::str(i, ".", p.key()), .value = p.value()});
      }
    }
  }
  std::vector<ParameterUnit> units() const {
    std::vector<ParameterUnit> out;
    for (size_t i = 0; i < kLayers; ++i) out.push_back({c10::str("layer ", i), {c10::str(i, ".weight"), c10::str(i, ".bias")}});
    return out;
  }
  using Run = std::function<at::Tensor(size_t, const UnitForward&, const at::Tensor&)>;
  at::Tensor loss(
      int64_t sample, const Run& run = [](size_t, const UnitForward& forward, const at::Tensor& x) { return forward(x); },
      size_t left_out = kLayers) {
    auto x = (torch::arange(12, at::kFloat) + static_cast<float>(sample)).cos().reshape({2, 6});
    for (size_t i = 0; i < kLayers; ++i) {
      const auto forward = [&, i](const at::Tensor& in) { return layers[i]->forward(in).tanh() * scale[0]; };
      x = i == left_out ? at::constant_pad_nd(x, {0, 1}) : run(i, forward, x);
    }
    return (x.square().mean() * scale[1]) / 8;
  }
  size_t units_with_memory() const {
    size_t out = 0;
    for (const auto& layer : layers) out += has_memory(layer->weight) ? 1 : 0;
    return out;
  }
};

void descend(const ParameterSet& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& p : parameters)
    if (p.value.grad().defined()) p.value.sub_(p.value.grad(), 0.05);
}

// The numbers of each rank's micro-batches in one window. A micro-batch whose number is not positive has no loss.
using Window = std::vector<std::vector<int64_t>>;

std::vector<at::Tensor> of_one_process(const std::vector<Window>& windows, size_t left_out_by_last = kLayers) {
  DeepNet net;
  for (const auto& window : windows) {
    net.parameters.zero_grad();
    for (size_t k = 0; k < 4; ++k)
      for (size_t r = 0; r < window.size(); ++r)
        if (k < window[r].size() && window[r][k] > 0)
          net.loss(
                 window[r][k], [](size_t, const UnitForward& f, const at::Tensor& x) { return f(x); },
                 r + 1 == window.size() ? left_out_by_last : kLayers)
              .backward();
    descend(net.parameters);
  }
  return net.parameters.values();
}

// Returns the parameters of each rank after training, complete again.
std::vector<std::vector<at::Tensor>> of_ranks(const std::vector<Window>& windows, const DistOptions& options = {},
                                              size_t left_out_by_last = kLayers) {
  const auto ranks = static_cast<int>(windows[0].size());
  const auto network = std::make_shared<Network>(ranks);
  std::vector<std::vector<at::Tensor>> out(windows[0].size());
  on_ranks(network->agreements, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    DeepNet net;
    GradientReducer reducer(net.parameters, std::make_shared<InProcessGroup>(network, rank), options, Sharding::Parameters, net.units());
    const auto run = [&](size_t i, const UnitForward& forward, const at::Tensor& x) { return reducer.run(i, forward, x); };
    for (const auto& window : windows) {
      reducer.own().zero_grad();
      reducer.begin_window(static_cast<int64_t>(window[r].size()));
      for (size_t k = 0; k < window[r].size(); ++k) {
        reducer.begin_forward();
        const auto loss = net.loss(std::abs(window[r][k]), run, rank + 1 == ranks ? left_out_by_last : kLayers);
        if (window[r][k] <= 0) continue;
        reducer.begin_backward(k + 1 == window[r].size());
        loss.backward();
      }
      reducer.finish();
      CHECK(net.units_with_memory() == 0);
      CHECK_FALSE(has_memory(net.scale));
      descend(reducer.own());
    }
    reducer.unshard_parameters();
    for (const auto& p : net.parameters) out[r].push_back(p.value.detach().clone());
  });
  return out;
}

void check_equal(const std::vector<std::vector<at::Tensor>>& ranks, const std::vector<at::Tensor>& expected) {
  for (const auto& of_rank : ranks)
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK(at::equal(of_rank[i], expected[i]));
    }
}

}  // namespace

TEST_CASE("N ranks with parameters in shards have the bits of one process, over several steps") {
  at::set_num_threads(1);
  for (const size_t ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    std::vector<Window> windows(3);
    for (size_t w = 0; w < windows.size(); ++w)
      for (size_t r = 0; r < ranks; ++r) windows[w].push_back({static_cast<int64_t>(10 * w + r + 1)});
    const auto expected = of_one_process(windows);
    check_equal(of_ranks(windows), expected);
    check_equal(of_ranks(windows, {.reduce = "window"}), expected);
    check_equal(of_ranks(windows, {.overlap = false}), expected);
  }
}

TEST_CASE("groups of ranks that have all shards each: the bits of one process, and slices of a group's size") {
  at::set_num_threads(1);
  const std::vector<Window> windows{{{1}, {2}, {3}, {4}}, {{1, 2}, {}, {3}, {4, 5}}, {{}, {1}, {2, -3}, {4}}};
  const auto expected = of_one_process(windows);
  for (const char* size : {"1", "2", "4"}) {
    CAPTURE(size);
    check_equal(of_ranks(windows, {.shard_size = size}), expected);
  }
  check_equal(of_ranks(windows, {.shard_size = "2", .overlap = false}), expected);
  const std::vector<Window> six{{{1}, {2}, {3}, {4}, {5}, {6}}};
  for (const char* size : {"2", "3"}) check_equal(of_ranks(six, {.shard_size = size}), of_one_process(six));
  const auto network = std::make_shared<Network>(4);
  on_ranks(network->agreements, [&](int rank) {
    DeepNet net;
    const auto group = std::make_shared<InProcessGroup>(network, rank);
    const GradientReducer reducer(net.parameters, group, {.shard_size = "2"}, Sharding::Gradients);
    CHECK(reducer.shard_size() == 2);
    int64_t own = 0;
    for (const auto& p : reducer.own()) own += p.value.numel();
    CHECK(std::abs(2 * own - net.parameters.numel()) < 64 * 4 * static_cast<int64_t>(net.parameters.size()));
    for (const char* size : {"3", "0", "8", "two", "2x"})
      CHECK(has(error_of([&] { GradientReducer(net.parameters, group, {.shard_size = size}, Sharding::Gradients); }).what(),
                "allowed: auto, or a number that divides that of ranks"));
    CHECK(has(error_of([&] { GradientReducer(net.parameters, group, {.shard_size = "2"}); }).what(), "ddp has none"));
  });
}

TEST_CASE("ranks with fewer micro-batches, with none, and with some that have no loss take part") {
  at::set_num_threads(1);
  const std::vector<Window> windows{{{1, 2, 3}, {4}}, {{}, {1, 2}}, {{1, -2, 3}, {4, 5, 6}}, {{1, 2}, {3, -4}}, {{-1}, {2}},
                                    {{-1, 2, 3}, {}}, {{}, {-1, 2}}};
  const auto expected = of_one_process(windows);
  check_equal(of_ranks(windows), expected);
  check_equal(of_ranks(windows, {.overlap = false}), expected);
  const std::vector<Window> three{{{1}, {}, {2, 3, 4}}, {{}, {1, -2}, {3}}};
  check_equal(of_ranks(three), of_one_process(three));
}

TEST_CASE("a unit that one rank does not run, and another does") {
  at::set_num_threads(1);
  for (const size_t left_out : {size_t{1}, kLayers - 2}) {  // the latter has the shape of the output
    CAPTURE(left_out);
    const std::vector<Window> windows{{{1, 2}, {3, 4}}, {{5}, {6, 7}}};
    check_equal(of_ranks(windows, {}, left_out), of_one_process(windows, left_out));
  }
}

TEST_CASE("during a pass the parameters of one unit have memory, between passes those of none") {
  at::set_num_threads(1);
  const auto network = std::make_shared<Network>(2);
  on_ranks(network->agreements, [&](int rank) {
    DeepNet net;
    GradientReducer reducer(net.parameters, std::make_shared<InProcessGroup>(network, rank), {}, Sharding::Parameters, net.units());
    CHECK(net.units_with_memory() == 0);
    int64_t own = 0;
    for (const auto& p : reducer.own()) own += p.value.numel();
    CHECK(own <= net.parameters.numel() / 2 + 64 * static_cast<int64_t>(net.parameters.size()));
    size_t most = 0;
    reducer.begin_forward();
    const auto loss = net.loss(1, [&](size_t i, const UnitForward& forward, const at::Tensor& x) {
      const auto y = reducer.run(
          i,
          [&](const at::Tensor& in) {
            most = std::max(most, net.units_with_memory());
            return forward(in);
          },
          x);
      y.register_hook([&](const at::Tensor&) { most = std::max(most, net.units_with_memory()); });
      return y;
    });
    CHECK(most == 1);                     // the next unit is being sent, but is not in the parameters yet
    CHECK(net.units_with_memory() == 1);  // the last unit, whose backward pass comes first
    reducer.begin_backward(true);
    loss.backward();
    CHECK(most == 1);
    reducer.finish();
    // Runs outside of windows, and on a rank that has nothing to compute.
    for (int k = 0; k < 2; ++k) {
      if (rank == 0) {
        const at::NoGradGuard no_grad;
        reducer.begin_forward(/*backward=*/false);
        net.loss(2, [&](size_t i, const UnitForward& forward, const at::Tensor& x) { return reducer.run(i, forward, x); });
      } else {
        reducer.idle_forward();
      }
    }
    reducer.end_forward();
    CHECK(net.units_with_memory() == 0);
  });
}

TEST_CASE("what cannot be done with units is refused by name") {
  const auto network = std::make_shared<Network>(1);
  DeepNet net;
  const auto group = std::make_shared<InProcessGroup>(network, 0);
  auto units = net.units();
  units[1].parameters.push_back("3.bias");
  CHECK(has(error_of([&] { GradientReducer(net.parameters, group, {}, Sharding::Parameters, units); }).what(),
            "3.bias is in two units, layer 1 and layer 3"));
  GradientReducer reducer(net.parameters, group, {}, Sharding::Parameters, net.units());
  const auto forward = [&](const at::Tensor& in) { return net.layers[0]->forward(in); };
  const auto x = at::ones({1, 6});
  CHECK(has(error_of([&] { reducer.run(0, forward, x); }).what(), "layer 0 runs outside of a pass"));
  CHECK_THROWS_AS(forward(x), c10::Error);  // an error, not a crash, because its parameters have no memory
  reducer.begin_forward();
  reducer.run(0, forward, x);
  CHECK(has(error_of([&] { reducer.run(0, forward, x); }).what(), "layer 0 runs twice in a forward pass"));
  CHECK(has(error_of([&] { reducer.run(kLayers, forward, x); }).what(), "there is no unit 5; there are 5"));
  GradientReducer complete(DeepNet().parameters, group);
  CHECK(has(error_of([&] { complete.begin_forward(); }).what(), "is for Sharding::Parameters"));
  CHECK(has(error_of([&] { complete.idle_forward(); }).what(), "idle_forward() is for Sharding::Parameters"));
  CHECK(has(error_of([&] { complete.end_forward(); }).what(), "end_forward() is for Sharding::Parameters"));
}

TEST_CASE("one process is all ranks: it receives its own values") {
  SingleDeviceStrategy strategy;
  CHECK(strategy.ranks().rank() == 0);
  CHECK(strategy.ranks().size() == 1);
  CHECK(strategy.ranks().is_main());
  CHECK(strategy.capturable());
  const auto w = at::ones({3}).set_requires_grad(true);
  ParameterSet parameters;
  parameters.add({.name = "w", .value = w});
  const auto updated = strategy.setup(parameters);
  REQUIRE(updated.size() == 1);
  CHECK(updated[0].value.is_same(w));
  CHECK(strategy.ranks().sum(2.5) == 2.5);

  strategy.backward((w * 2).sum(), /*last=*/false);
  strategy.backward((w * 3).sum(), /*last=*/true);
  const auto gradient = w.grad();
  const auto weight = strategy.finish_gradients({.loss = 7, .samples = 5, .micro_batches = 2});
  CHECK(weight.loss == 7);
  CHECK(weight.samples == 5);
  CHECK(weight.micro_batches == 2);
  CHECK(w.grad().is_same(gradient));
  CHECK(at::equal(gradient, at::full({3}, 5.0)));

  const StepAgreement own{.found_inf = at::ones({}), .squares = at::rand({}), .sums = at::rand({3})};
  auto all = own;
  const auto versions = [](const StepAgreement& a) {
    return std::vector<int64_t>{a.found_inf._version(), a.squares._version(), a.sums._version()};
  };
  const auto before = versions(own);
  strategy.agree(all);
  strategy.finish_step();
  strategy.ranks().barrier();
  CHECK((all.found_inf.is_same(own.found_inf) && all.squares.is_same(own.squares) && all.sums.is_same(own.sums)));
  CHECK(versions(all) == before);
  CHECK(strategy.decide(0) == 0);
  CHECK(strategy.decide(3) == 3);
}

TEST_CASE("ranks in threads: each gets what all gave, and a decision of one is that of all") {
  const auto exchange = std::make_shared<Exchange>(3);
  std::vector<double> sums(3);
  std::vector<unsigned> decided(3), again(3);
  on_ranks(*exchange, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    ReplicatedRank strategy(exchange, rank);
    sums[i] = strategy.ranks().sum(rank + 1);
    strategy.decide(rank == 1 ? 2 : 0);
    StepAgreement step{.found_inf = {}, .squares = {}, .sums = at::ones({1})};
    strategy.agree(step);
    decided[i] = strategy.decide(0);
    again[i] = strategy.decide(0);
    strategy.ranks().barrier();
  });
  CHECK(sums == std::vector<double>(3, 6));
  CHECK(decided == std::vector<unsigned>(3, 2));
  CHECK(again == std::vector<unsigned>(3, 0));
}

TEST_CASE("ranks in threads: a rank that waits for one that failed gets an error") {
  const auto exchange = std::make_shared<Exchange>(2);
  const auto errors = errors_of_ranks(*exchange, [&](int rank) {
    ReplicatedRank strategy(exchange, rank);
    check(rank == 0, ErrorKind::Data, "test", "rank 1 has no data");
    strategy.ranks().barrier();
  });
  REQUIRE((errors[0] && errors[1]));
  CHECK(errors[0]->kind() == ErrorKind::Peer);
  CHECK(errors[1]->kind() == ErrorKind::Data);
}
