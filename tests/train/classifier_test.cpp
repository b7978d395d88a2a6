#include "testing.hpp"

#include "npu_train/train/classifier.hpp"

#include <cmath>
#include <limits>

#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A model that returns given logits.
struct Given : torch::nn::Module {
  at::Tensor logits;
  at::Tensor forward(at::Tensor) { return logits; }
};

std::pair<StepOutput, at::Tensor> run(const at::Tensor& logits, Batch batch, double smoothing = 0) {
  auto net = std::make_shared<Given>();
  net->logits = logits;
  const auto task = classifier(net, {.label_smoothing = smoothing});
  auto output = task->training_step(batch);
  auto sums = task->metric_sums(output, batch);
  return {output, sums};
}

Batch targets(const at::Tensor& target) { return Batch(torch::zeros({target.size(0), 1}), target); }

}  // namespace

TEST_CASE("loss and accuracies of known logits") {
  const auto logits = torch::tensor({{9., 1., 0., 0., 0., 0., 0.}, {6., 5., 4., 3., 2., 1., 9.}, {0., 1., 2., 3., 4., 5., 6.}});
  const auto [output, sums] = run(logits, targets(torch::tensor({0, 4, 0})));
  CHECK(output.loss.item<double>() == doctest::Approx(torch::cross_entropy_loss(logits, torch::tensor({0, 4, 0})).item<double>()));
  CHECK(output.weight == 3);
  CHECK(sums[0].item<double>() == 100);  // only the first sample is right
  CHECK(sums[1].item<double>() == 100);  // the target of the second sample has rank 6, that of the third 7
  const auto [output2, sums2] = run(logits, targets(torch::tensor({0, 3, 6})));
  CHECK(sums2[0].item<double>() == 200);
  CHECK(sums2[1].item<double>() == 300);
}

TEST_CASE("acc5 needs more than 5 classes") {
  auto net = std::make_shared<Given>();
  net->logits = torch::tensor({{9., 1., 0., 0., 0.}, {6., 5., 4., 3., 2.}});
  for (const int64_t classes : {2, 5, 6, 0}) {
    auto model = as_model(net);
    model.num_classes = classes;
    const auto task = classifier(model);
    CHECK(task->metric_names() ==
          (classes == 2 || classes == 5 ? std::vector<std::string>{"acc1"} : std::vector<std::string>{"acc1", "acc5"}));
    const auto batch = targets(torch::tensor({0, 1}));
    CHECK(checked_metric_sums(*task, task->validation_step(batch), batch)[0].item<double>() == 100);
  }
}

TEST_CASE("logits that are not finite are never counted as right") {
  const auto nan = torch::full({2, 7}, std::numeric_limits<float>::quiet_NaN());
  CHECK(run(nan, targets(torch::tensor({0, 1}))).second.sum().item<double>() == 0);
}

TEST_CASE("a mask leaves padded samples out of loss and metrics") {
  const auto logits = torch::tensor({{2., 0., 0.}, {0., 3., 0.}, {5., 0., 0.}});
  auto padded = targets(torch::tensor({0, 1, 2}));
  padded.set("mask", torch::tensor({1., 1., 0.}));
  padded.size = 2;
  padded.weight = 2;
  const auto [output, sums] = run(logits, padded);
  const auto real = run(logits.slice(0, 0, 2), targets(torch::tensor({0, 1})));
  CHECK(output.loss.item<double>() == doctest::Approx(real.first.loss.item<double>()));
  CHECK(output.weight == 2);
  CHECK(sums[0].item<double>() == 200);
}

TEST_CASE("label smoothing and soft targets follow libtorch; validation does not smooth") {
  const auto logits = torch::randn({4, 5});
  const auto target = torch::tensor({0, 1, 2, 3});
  CHECK(run(logits, targets(target), 0.1).first.loss.item<double>() ==
        doctest::Approx(
            torch::nn::functional::cross_entropy(logits, target, torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1))
                .item<double>()));
  const auto soft = torch::softmax(torch::randn({4, 5}), 1);
  const auto [output, sums] = run(logits, targets(soft));
  CHECK(output.loss.item<double>() == doctest::Approx(-(soft * torch::log_softmax(logits, 1)).sum(1).mean().item<double>()));
}

TEST_CASE("class weights and the focal factor are those of their formulas, averaged over samples, in training only") {
  torch::manual_seed(4);
  const auto logits = torch::randn({6, 3}, torch::requires_grad());
  const auto target = torch::tensor({0, 1, -100, 2, 0, 0});
  auto net = std::make_shared<Given>();
  net->logits = logits;
  const auto loss_of = [&](const ClassifierOptions& options, const at::Tensor& with) {
    return classifier(net, options)->training_step(targets(with)).loss;
  };
  const auto plain =
      torch::nn::functional::cross_entropy(logits, target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
  const auto weights = torch::tensor({0.5F, 2.F, 4.F}).index_select(0, target.clamp_min(0));
  const ClassifierOptions weighted{.class_weights = {0.5, 2, 4}};
  CHECK(loss_of(weighted, target).item<double>() == doctest::Approx(((weights * plain).sum() / 5).item<double>()));
  const auto focal = ((1 - torch::exp(-plain)).square() * plain).sum() / 5;
  CHECK(loss_of({.focal_gamma = 2}, target).item<double>() == doctest::Approx(focal.item<double>()));
  CHECK(loss_of({.class_weights = {0.5, 2, 4}, .focal_gamma = 2}, target).item<double>() ==
        doctest::Approx(((1 - torch::exp(-plain)).square() * plain * weights).sum().item<double>() / 5));
  CHECK(classifier(net, weighted)->validation_step(targets(target)).loss.item<double>() == doctest::Approx(plain.sum().item<double>() / 5));
  loss_of({.focal_gamma = 0.5}, target).backward();
  CHECK(logits.grad().isfinite().all().item<bool>());

  const auto soft = torch::softmax(torch::randn({6, 3}), 1);
  CHECK(loss_of(weighted, soft).item<double>() ==
        doctest::Approx(-(soft * torch::log_softmax(logits, 1) * torch::tensor({0.5F, 2.F, 4.F})).sum(1).mean().item<double>()));
  CHECK(has(error_of([&] { loss_of({.focal_gamma = 2}, soft); }).what(), "data.mixup_alpha=0"));
  CHECK(has(error_of([&] { loss_of({.class_weights = {1, 2}}, target); }).what(), "class_weights has 2 numbers, and the model 3 classes"));
  CHECK(error_of([&] { loss_of({.class_weights = {1, 2, -1}}, target); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { loss_of({.label_smoothing = 0.1, .focal_gamma = 1}, target); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a sample that is certain has a focal loss of 0 with a gradient of 0") {
  auto net = std::make_shared<Given>();
  net->logits = torch::tensor({{100.F, 0.F}}, torch::requires_grad());
  const auto loss = classifier(net, {.focal_gamma = 0.5})->training_step(targets(torch::tensor({0}))).loss;
  CHECK(loss.item<double>() == 0);
  loss.backward();
  CHECK(net->logits.grad().isfinite().all().item<bool>());
}

TEST_CASE("balanced weights are inverse to the sizes of the classes, with a mean of 1 over the samples") {
  CHECK(balanced_class_weights({6, 2, 4}) == std::vector<double>{12. / 18, 2, 1});
  CHECK(has(error_of([] { balanced_class_weights({6, 0}); }).what(), "class 1 has no training samples"));
}

TEST_CASE("shapes that do not fit are reported") {
  CHECK(error_of([] { run(torch::zeros({2, 3, 4}), targets(torch::tensor({0, 1}))); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { run(torch::zeros({2, 3}), targets(torch::zeros({2, 2, 2}))); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { classifier(ToyNet(0.0), {.label_smoothing = 1.5}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a label out of range is reported with its sample and the classes") {
  auto batch = targets(torch::tensor({0, 2, -100, 3}));
  batch.ids = {10, 11, 12, 13};
  const auto e = error_of([&] { run(torch::zeros({4, 3}), batch); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(std::string(e.what()) ==
        "[classifier] the target of sample 13 is 3, and the model has 3 classes; allowed: 0 to 2; hint: correct the label, or set "
        "model.num_classes=4");
  const auto negative = error_of([&] { run(torch::zeros({2, 3}), targets(torch::tensor({0, -1}))); });
  CHECK_MESSAGE(has(negative.what(), "the target of row 1 is -1"), negative.what());
  CHECK(run(torch::zeros({2, 3}), targets(torch::tensor({2, 0}))).first.loss.item<float>() == doctest::Approx(std::log(3.0f)));
}

TEST_CASE("a regressor measures squares and absolute errors") {
  auto net = std::make_shared<Given>();
  net->logits = torch::tensor({{1., 2.}, {3., 5.}});
  const auto task = regressor(net);
  const auto batch = targets(torch::tensor({{1., 0.}, {3., 4.}}));
  const auto output = task->training_step(batch);
  CHECK(output.loss.item<double>() == doctest::Approx(5.0 / 4));
  CHECK(task->metric_sums(output, batch).item<double>() == doctest::Approx(1.5));
  CHECK(error_of([&] { task->training_step(targets(torch::zeros({2, 3}))); }).kind() == ErrorKind::Usage);
}
