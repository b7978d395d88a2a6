#include "testing.hpp"

#include "train/callbacks/evaluation.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::Evaluation;
using npu_train::detail::OverfitBatches;

namespace {

struct Evaluated {
  Toy toy;
  Loader loader{toy.val, Pipeline(), LoaderOptions{.batch_size = 8}};  // gives 3 batches
  std::atomic<bool> stop = false;
  std::optional<FailedWindow> failed;
  Evaluation evaluation{{.task = *toy.task,
                         .precision = *toy.precision,
                         .average = nullptr,
                         .strategy = *toy.strategy,
                         .device = device_under_test(),
                         .stop = stop,
                         .failed = failed}};
};

}  // namespace

TEST_CASE("a validation averages over samples, in evaluation mode, and puts the mode of training back") {
  Evaluated e;
  std::vector<int64_t> done;
  Evaluation::Options options;
  options.on_batch = [&](int64_t k, std::optional<int64_t> total) {
    done.push_back(k);
    CHECK(total == 3);
    CHECK_FALSE(e.toy.net->is_training());
  };
  const auto found = e.evaluation.run(e.loader, options);
  REQUIRE(found);
  CHECK(done == std::vector<int64_t>{1, 2, 3});
  CHECK(e.toy.net->is_training());
  const auto data = std::dynamic_pointer_cast<TensorDataset>(e.toy.val);
  const auto logits =
      e.evaluation.predict(Batch(data->inputs(), data->targets()), [&](const Batch& b) { return e.toy.task->forward(b); }).first();
  CHECK(scalar_or(*found, "loss", 0) == doctest::Approx(torch::cross_entropy_loss(logits, data->targets()).item<double>()).epsilon(1e-5));
  CHECK(scalar_or(*found, "acc1", -1) ==
        doctest::Approx(100 * logits.argmax(1).eq(data->targets()).to(torch::kDouble).mean().item<double>()));
}

TEST_CASE("a limit, a stop, and the batches of overfit_batches") {
  Evaluated e;
  const auto samples = [&](Evaluation::Options options) {
    int64_t batches = 0;
    options.on_batch = [&](int64_t, std::optional<int64_t>) { ++batches; };
    const auto found = e.evaluation.run(e.loader, options);
    return found ? batches : -1;
  };
  CHECK(samples({.limit = 2}) == 2);
  CHECK(error_of([&] { samples({.limit = 0}); }).kind() == ErrorKind::Data);
  OverfitBatches overfit(2);
  Loader train(e.toy.train, Pipeline(), LoaderOptions{.batch_size = 8});
  CHECK(samples({.overfit = &overfit, .train_loader = &train}) == 2);
  CHECK(overfit.size() == 2);
  e.stop = true;
  CHECK(samples({.stoppable = true}) == -1);
  CHECK(samples({}) == 3);
  CHECK(e.toy.net->is_training());
}
