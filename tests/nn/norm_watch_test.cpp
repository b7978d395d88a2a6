#include "testing.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/nn.h>

#include <vector>

#include "npu_train/nn/batch_norm_act.hpp"
#include "npu_train/nn/norm_watch.hpp"

using namespace npu_train;

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
