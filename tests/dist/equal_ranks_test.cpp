// The comparisons of ranks before a reduction, and gradients and parameters that a custom loop may leave behind. Ranks are threads.
#include "npu_train/dist/gradient_reducer.hpp"

#include "testing.hpp"

#include <ATen/ops/arange.h>
#include <torch/nn.h>

#include "dist/in_process_group.hpp"
#include "npu_train/dist/data_parallel.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int kEqualRanks = 3;

ParameterSet two_vectors(double first = 0) {
  ParameterSet out;
  out.add({.name = "a", .value = at::arange(300, at::kFloat).requires_grad_(true)});
  out.add({.name = "b", .value = (at::arange(70, at::kFloat) + first).requires_grad_(true)});
  return out;
}

// Returns each rank's error when it makes a reducer; rank 2 makes it differently.
template <class Fn>
std::vector<std::optional<Error>> errors_of(Fn make) {
  const auto network = std::make_shared<Network>(kEqualRanks);
  return errors_of_ranks(network->agreements, [&](int rank) { make(std::make_shared<InProcessGroup>(network, rank), rank == 2); });
}

// Returns a rank's loss: the sum of a and of a row of b, times a factor of its own.
at::Tensor loss_of_rank(const ParameterSet& p, int rank, int64_t window) {
  return (p[0].value * static_cast<double>(rank + 1 + window)).sum() + (p[1].value.narrow(0, 10 * rank, 10) * 3).sum();
}

}  // namespace

TEST_CASE("ranks with other options are refused by name before anything waits: sizes, order, dtype, division") {
  struct Case {
    DistOptions other;
    Sharding sharding;
    const char* expected;
  };
  for (const auto& c :
       {Case{{.bucket_mib = 0.5}, Sharding::Gradients, "rank 2 has dist.bucket_mib=0.5 where rank 0 has dist.bucket_mib=25"},
        Case{{.reduction = "native"}, Sharding::Gradients, "rank 2 has dist.reduction=native where rank 0 has dist.reduction=ordered"},
        Case{{.reduce = "window"}, Sharding::Gradients, "rank 2 has dist.reduce=window where rank 0 has dist.reduce=micro_batch"},
        Case{{.reduce_dtype = "bf16"}, Sharding::Gradients, "dist.reduce_dtype=bf16"},
        Case{{.group_size = "2"}, Sharding::Gradients, "where rank 0 has dist."},
        Case{{}, Sharding::None, "rank 2 has sharding=ddp where rank 0 has sharding=zero2"},
        Case{{}, Sharding::Parameters, "rank 2 has sharding=zero3 where rank 0 has sharding=zero2"}}) {
    CAPTURE(c.expected);
    for (const auto& error : errors_of([&](const std::shared_ptr<ProcessGroup>&group, bool other) {
           GradientReducer(two_vectors(), group, other ? c.other : DistOptions{}, other ? c.sharding : Sharding::Gradients);
         })) {
      REQUIRE(error.has_value());
      CHECK(error->kind() == ErrorKind::Usage);
      CHECK_MESSAGE(has(error->what(), c.expected), error->what());
    }
  }
}

TEST_CASE("ranks with other weights are refused by name, unless a strategy has sent those of rank 0") {
  for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Parameters}) {
    for (const auto& error : errors_of([&](const std::shared_ptr<ProcessGroup>&group, bool other) {
           GradientReducer(two_vectors(other ? 1 : 0), group, {}, sharding);
         })) {
      REQUIRE(error.has_value());
      CHECK(error->kind() == ErrorKind::Peer);
      CHECK(has(error->what(), "the values of b on rank 2 differ from those on rank 0"));
    }
    for (const bool sends : {true, false})
      for (const auto& error : errors_of([&](const std::shared_ptr<ProcessGroup>&group, bool other) {
             const auto own = two_vectors(other ? 1 : 0);
             DataParallelStrategy strategy(group, {}, at::kCPU, sharding);
             if (sends) strategy.broadcast(own.values());
             strategy.setup(own);
           }))
        CHECK(error.has_value() != sends);
  }
}

TEST_CASE("gradients that are not zeroed are added once, as one process adds them, and those zeroed in place count as none") {
  for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients})
    for (const bool in_place : {false, true}) {
      CAPTURE(static_cast<int>(sharding));
      CAPTURE(in_place);
      const auto one = two_vectors();
      for (int64_t window = 0; window < 3; ++window) {
        if (in_place) one.zero_grad(/*set_to_none=*/false);
        for (int r = 0; r < kEqualRanks; ++r) loss_of_rank(one, r, window).backward();
      }
      const auto network = std::make_shared<Network>(kEqualRanks);
      on_ranks(network->agreements, [&](int rank) {
        const auto all = two_vectors();
        GradientReducer reducer(all, std::make_shared<InProcessGroup>(network, rank), {}, sharding);
        for (int64_t window = 0; window < 3; ++window) {
          if (in_place) reducer.own().zero_grad(/*set_to_none=*/false);
          reducer.begin_backward(/*last=*/true);
          loss_of_rank(all, rank, window).backward();
          reducer.finish();
        }
        for (size_t i = 0; i < all.size(); ++i) {
          const auto& own = reducer.own()[i];
          const auto begin = own.is_slice() ? own.begin : 0;
          CHECK(at::equal(own.value.grad(), one[i].value.grad().narrow(0, begin, own.value.numel())));
        }
      });
    }
}

TEST_CASE("sparse gradients are refused by name") {
  for (const auto& error : errors_of([&](const std::shared_ptr<ProcessGroup>&group, bool) {
         const auto table = at::arange(30, at::kFloat).view({10, 3}).clone().requires_grad_(true);
         ParameterSet all;
         all.add({.name = "table", .value = table});
         GradientReducer reducer(all, group);
         reducer.begin_backward(/*last=*/true);
         at::embedding(table, at::arange(3), /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true).sum().backward();
         reducer.finish();
       })) {
    REQUIRE(error.has_value());
    CHECK(error->kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(error->what(), "the gradient of table is Sparse; allowed with several ranks: dense gradients"), error->what());
  }
}

TEST_CASE("a parameter in shards is readable in its unit, and an error that names both outside of it") {
  const auto network = std::make_shared<Network>(2);
  on_ranks(network->agreements, [&](int rank) {
    const auto all = two_vectors();
    GradientReducer reducer(all, std::make_shared<InProcessGroup>(network, rank), {}, Sharding::Parameters, {{"first", {"a"}}});
    const auto refused = [&](size_t i, const char* text) {
      const auto error = error_of([&] { translated("test", [&] { (void)all[i].value.sum(); }); });
      CHECK_MESSAGE(has(error.what(), text), error.what());
      const auto in_layer = error_of([&] {
        translated("test", [&] { (void)at::linear(at::ones({2, all[i].value.numel()}), all[i].value.unsqueeze(0)); });
      });
      CHECK_MESSAGE(has(in_layer.what(), text), in_layer.what());
      CHECK_THROWS((void)all[i].value.detach().clone());
      CHECK_THROWS((void)all[i].value.data_ptr());
      const at::NoGradGuard no_grad;
      CHECK_THROWS((void)all[i].value.zero_());
    };
    const auto hidden = [&] {
      refused(0, "the parameter a is in shards, and has memory only while its unit, first, runs in a pass");
      refused(1, "the parameter b is in shards, and has memory only while its unit, the root, runs in a pass");
    };
    hidden();
    for (int step = 0; step < 2; ++step) {
      reducer.begin_forward();
      refused(0, "its unit, first,");
      const auto x = at::ones({300}).requires_grad_(true);
      auto y = reducer
                   .run(
                       0, [&](const at::Tensor& in) { return all[0].value * all[0].value * in; }, x)
                   .sum() +
               all[1].value.sum();
      reducer.begin_backward(/*last=*/true);
      y.backward();
      CHECK(at::equal(x.grad(), at::arange(300, at::kFloat).square()));
      reducer.finish();
      reducer.own().zero_grad();
      hidden();
    }
    reducer.unshard_parameters();
    for (const auto& p : all) CHECK(at::isfinite(p.value).all().item<bool>());
  });
}
