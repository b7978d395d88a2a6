// Sixty-four ranks, as threads: they send only the messages that the algorithm needs, and have the gradients of one process.
#include "testing.hpp"

#include <numeric>

#include <torch/nn.h>

#include "dist/flat_layout.hpp"
#include "dist/in_process_group.hpp"
#include "npu_train/dist/data_parallel.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int kRanks = 64;

struct Net {
  torch::nn::Linear first{nullptr}, unused{nullptr}, last{nullptr};
  ParameterSet parameters;

  Net() : first(5, 70), unused(3, 3), last(70, 2) {
    uint64_t seed = 1;
    const at::NoGradGuard no_grad;
    for (const auto& [name, layer] :
         std::vector<std::pair<std::string, torch::nn::Linear>>{{"first", first}, {"unused", unused}, {"last", last}})
      for (const auto& p : layer->named_parameters()) {
        const auto n = p.value().numel();
        p.value().copy_((torch::arange(n, at::kDouble) * 0.37 + static_cast<double>(seed++)).sin().reshape(p.value().sizes()));
        parameters.add({.name = name + "." + p.key(), .value = p.value()});
      }
  }
  at::Tensor loss(int64_t micro_batch) {
    const auto x = (torch::arange(20, at::kFloat) + static_cast<float>(micro_batch)).cos().reshape({4, 5});
    return last(first(x).tanh()).square().mean() / 64;
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> out;
    for (const auto& p : parameters) out.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::Tensor());
    return out;
  }
};

}  // namespace

TEST_CASE("a step of 64 ranks: two messages a bucket to each other rank, two agreements, and the bits of one process") {
  at::set_num_threads(1);
  const DistOptions options{.bucket_mib = 0.001};
  Net one;
  for (int64_t k = 0; k < kRanks; ++k) one.loss(k).backward();
  const auto expected = one.gradients();

  const auto network = std::make_shared<Network>(kRanks);
  std::vector<std::vector<at::Tensor>> seen(kRanks);
  std::vector<InProcessGroup::Counts> steps(kRanks);
  std::vector<WindowWeight> weights(kRanks);
  on_ranks(network->agreements, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    Net net;
    const auto group = std::make_shared<InProcessGroup>(network, rank);
    DataParallelStrategy strategy(group, options);
    strategy.setup(net.parameters);
    InProcessGroup::Counts before;
    for (int step = 0; step < 2; ++step) {  // counts the second step
      before = group->counts();
      for (const auto& p : net.parameters) p.value.mutable_grad().reset();
      strategy.begin_window(1);
      strategy.backward(net.loss(rank), /*last=*/true);
      weights[r] = strategy.finish_gradients({.loss = 1, .samples = 4, .micro_batches = 1});
      seen[r] = net.gradients();
      StepAgreement agreement{.found_inf = at::zeros({}), .squares = {}, .sums = at::full({1}, rank)};
      strategy.agree(agreement);
      strategy.finish_step();
      CHECK(agreement.sums.item<double>() == kRanks * (kRanks - 1) / 2);
    }
    const auto after = group->counts();
    steps[r] = {after.exchanges - before.exchanges, after.gathers - before.gathers, after.agreements - before.agreements,
                after.bytes - before.bytes};
  });

  const auto layout = npu_train::detail::flat_layout(one.parameters, kRanks, static_cast<int64_t>(options.bucket_mib * 1048576));
  REQUIRE(layout.size() > 1);
  const auto numel = std::accumulate(layout.begin(), layout.end(), int64_t{0}, [](int64_t sum, const auto& b) { return sum + b.numel; });
  const auto buckets = static_cast<int64_t>(layout.size());
  // Each bucket leaves a rank twice, except the part that stays: once in parts for the sums, once as the sum of this rank's part.
  const InProcessGroup::Counts computed{buckets, buckets, 2, 2 * numel * 4 / kRanks * (kRanks - 1)};
  for (size_t r = 0; r < kRanks; ++r) {
    CAPTURE(r);
    CHECK((steps[r] == computed));
    CHECK(weights[r].samples == 4 * kRanks);
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      REQUIRE(seen[r][i].defined() == expected[i].defined());
      if (expected[i].defined()) CHECK(at::equal(seen[r][i], expected[i]));
    }
  }
}
