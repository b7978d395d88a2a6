#include "testing.hpp"

#include "npu_train/train/model_task.hpp"

#include <torch/nn.h>

#include "npu_train/core/error.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

// A network with two inputs, two outputs, and statistics that belong to the model.
struct TwoTowersImpl : torch::nn::Module {
  TwoTowersImpl()
      : left(register_module("left", torch::nn::Linear(3, 2))),
        right(register_module("right", torch::nn::Linear(5, 2))),
        norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}
  Outputs forward(const Batch& batch) {
    const auto a = norm(left(batch.at("a"))), b = right(batch.at("b"));
    return Outputs({{"sum", a + b}, {"difference", a - b}});
  }
  torch::nn::Linear left, right;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(TwoTowers);

Batch two_inputs() {
  Batch batch;
  batch.set("a", torch::ones({4, 3}));
  batch.set("b", torch::ones({4, 5}));
  batch.set("target", torch::zeros({4, 2}));
  batch.size = 4, batch.weight = 4;
  return batch;
}

at::Tensor both_squares(const Outputs& out, const Batch& /*batch*/) {
  return out.at("sum").square().mean() + out.at("difference").square().mean();
}

}  // namespace

TEST_CASE("a task of a model with two inputs and two outputs, any loss and own metrics") {
  torch::manual_seed(1);
  TwoTowers net;
  const Metric largest{"largest", [](const StepOutput& output, const Batch& batch) {
                         return output.outputs.at("difference").abs().max() * static_cast<double>(batch.size);
                       }};
  const auto built = task(net, both_squares, {mean_absolute_error(), largest});
  const auto batch = two_inputs();
  const auto out = built->training_step(batch);
  const auto expected = net->forward(batch);
  CHECK(out.loss.item<float>() == doctest::Approx(both_squares(expected, batch).item<float>()));
  CHECK(out.weight == 4);
  CHECK(built->metric_names() == std::vector<std::string>{"mae", "largest"});
  const auto sums = built->metric_sums(out, batch);
  CHECK(sums[0].item<float>() == doctest::Approx(4 * expected.at("sum").abs().mean().item<float>()));
  CHECK(sums[1].item<float>() == doctest::Approx(4 * expected.at("difference").abs().max().item<float>()));
  out.loss.backward();
  CHECK(net->left->weight.grad().defined());

  // The task gets everything that belongs to the model automatically.
  CHECK(built->buffers().size() == 3);
  CHECK(built->norm_parameters() == std::vector<std::string>{"norm.weight", "norm.bias"});
  CHECK(built->module_types().at("left") == "Linear");
  CHECK(built->parameters().size() == 6);
}

TEST_CASE("a task forwards a batch to a model with several inputs, and the input of a batch to its own predict()") {
  TwoTowers net;
  const auto built = task(net, both_squares);
  built->set_training(false);
  const auto batch = two_inputs();
  const auto out = built->forward(batch);
  const auto expected = net->forward(batch);
  REQUIRE(out.fields().size() == 2);
  for (const auto& [name, value] : expected.fields()) CHECK(out.at(name).equal(value));

  struct Doubling final : ModelTask {
    using ModelTask::ModelTask;
    StepOutput training_step(const ForwardContext& context) override {
      return {forward(context.batch()).first().mean(), context.batch().weight};
    }
    at::Tensor predict(const at::Tensor& input) override { return 2 * input; }
  } doubling(as_model(torch::nn::Linear(3, 2)));
  CHECK(doubling.forward(Batch(torch::ones({1, 3}), torch::ones({1}))).first().equal(torch::full({1, 3}, 2.0)));
}

TEST_CASE("a Sequential, whose forward accepts anything, is called with a tensor") {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::ReLU());
  const auto built = task(net, [](const Outputs& out, const Batch&) { return out.first().sum(); });
  const Batch batch(torch::ones({2, 3}), torch::zeros({2}));
  CHECK(built->training_step(batch).loss.item<float>() == doctest::Approx(net->forward(batch.input()).sum().item<float>()));
}

TEST_CASE("a classifier with other metrics") {
  torch::nn::Linear net(3, 4);
  const auto built = classifier(net, {.metrics = {accuracy(3)}});
  CHECK(built->metric_names() == std::vector<std::string>{"acc3"});
  const Batch batch(torch::ones({2, 3}), torch::tensor({0, 1}));
  CHECK(built->metric_sums(built->training_step(batch), batch).numel() == 1);
}

TEST_CASE("a task that cannot work is refused when it is made") {
  torch::nn::Linear net(3, 4);
  const Metric unnamed{"", accuracy(1).sums}, empty{"x", {}};
  for (const auto& metrics : {std::vector<Metric>{unnamed}, {empty}, {accuracy(1), accuracy(1)}})
    CHECK(error_of([&] { task(net, both_squares, metrics); }).kind() == ErrorKind::Usage);
  CHECK(has(error_of([&] { task(net, {}); }).what(), "the loss is an empty function"));
  CHECK(has(error_of([&] { task(Model{}, both_squares); }).what(), "no module"));
  const Metric two{"two", [](const StepOutput&, const Batch&) { return torch::ones({2}); }};
  const auto built = task(net, [](const Outputs& out, const Batch&) { return out.first().sum(); }, {two});
  const Batch batch(torch::ones({2, 3}), torch::tensor({0, 1}));
  const auto e = error_of([&] { built->metric_sums(built->training_step(batch), batch); });
  CHECK(has(e.what(), "the metric 'two' gave a tensor of [2]"));
}
