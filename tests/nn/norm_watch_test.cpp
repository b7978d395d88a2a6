#include "testing.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/nn.h>

#include <vector>

#include "npu_train/nn/batch_norm_act.hpp"
#include "npu_train/nn/norm_watch.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct SeenNorms final : npu_train::detail::NormWatch {
  std::vector<Statistics> norms;

 private:
  void on_norm(const Statistics& statistics) override { norms.push_back(statistics); }
};

}  // namespace

TEST_CASE("every normalisation layer of the thread is shown once, before its statistics move, to nested watches too") {
  torch::nn::BatchNorm1d own(3);
  const auto mean = torch::zeros({4}), variance = torch::ones({4});
  const SeenNorms outer;
  {
    const SeenNorms inner;
    own(torch::randn({5, 3}));
    batch_norm_act(torch::randn({2, 4, 3, 3}), {torch::ones({4}), torch::zeros({4}), mean, variance, true});
    for (const auto* watch : {&outer, &inner}) {
      REQUIRE(watch->norms.size() == 2);
      CHECK(watch->norms[0].mean.is_same(own->running_mean));
      CHECK(watch->norms[0].variance.is_same(own->running_var));
      CHECK(watch->norms[0].counter.is_same(own->num_batches_tracked));
      CHECK(watch->norms[0].count.item<int64_t>() == 0);
      CHECK(watch->norms[0].momentum == 0.1);
      CHECK(!watch->norms[1].momentum);  // it is npu_train's own kernel
      CHECK(watch->norms[1].mean.is_same(mean));
      CHECK_FALSE(watch->norms[1].counter.defined());
    }
  }
  torch::relu(torch::randn({2}));
  own(torch::randn({5, 3}));
  CHECK(outer.norms.size() == 3);
  own->eval();
  own(torch::randn({5, 3}));
  CHECK(!outer.norms.back().momentum);
}

TEST_CASE("a norm that an interpreter calls with its complete stack is shown with its own statistics") {
  const auto mean = torch::zeros({4}), variance = torch::ones({4}), other = torch::zeros({4});
  const SeenNorms watch;
  torch::jit::Stack stack{other, torch::randn({2, 4, 3, 3}), torch::ones({4}), torch::zeros({4}), mean, variance, true, 0.3, 1e-5, false};
  c10::Dispatcher::singleton().findSchemaOrThrow("aten::batch_norm", "").callBoxed(&stack);
  REQUIRE(watch.norms.size() == 1);
  CHECK(watch.norms[0].mean.is_same(mean));
  CHECK(watch.norms[0].variance.is_same(variance));
  CHECK(watch.norms[0].momentum == 0.3);
}

using npu_train::detail::move_norm;
using npu_train::detail::NormMoves;

TEST_CASE("the moves of two forwards, applied to the statistics from before, give those from after") {
  torch::manual_seed(4);
  torch::nn::BatchNorm1d norm(3);
  const auto mean = torch::randn({4}), variance = torch::rand({4}) + 0.5;
  const auto layer_mean = norm->running_mean.clone(), own_mean = mean.clone(), own_variance = variance.clone();
  NormMoves collected;
  for (int run = 0; run < 2; ++run) {
    norm(torch::randn({5, 3}));
    batch_norm_act(torch::randn({2, 4, 3, 3}), {torch::ones({4}), torch::zeros({4}), mean, variance, true, 0.3});
  }
  norm->eval();
  norm(torch::randn({5, 3}));
  const auto moves = collected.take();
  REQUIRE(moves.size() == 8);
  for (const auto& move : moves) {
    if (move.running.is_same(norm->running_mean)) move_norm(layer_mean, move.keep, move.added);
    if (move.running.is_same(mean)) move_norm(own_mean, move.keep, move.added);
    if (move.running.is_same(variance)) move_norm(own_variance, move.keep, move.added);
  }
  CHECK(at::equal(own_mean, mean));  // exact bits, because npu_train's own kernel reports them
  CHECK(at::equal(own_variance, variance));
  CHECK(at::allclose(layer_mean, norm->running_mean, 1e-6, 1e-7));
  CHECK(!at::equal(layer_mean, torch::zeros({3})));
  CHECK(collected.take().empty());
}

TEST_CASE("statistics of any dtype are moved in fp64 and rounded once; another number of channels is an Error") {
  const auto wide = at::full({2}, 1.0, at::kDouble), narrow = at::full({2}, 1.0, at::kBFloat16);
  for (const auto& running : {wide, narrow}) move_norm(running, 0.75, {0.1, 0.3});
  CHECK(wide[0].item<double>() == 0.75 + 0.1);
  CHECK(at::equal(narrow, wide.to(at::kBFloat16)));
  CHECK(error_of([&] { move_norm(wide, 0.5, {1.0}); }).kind() == ErrorKind::Peer);
}
