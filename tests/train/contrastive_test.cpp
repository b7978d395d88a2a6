#include "testing.hpp"

#include "npu_train/train/contrastive.hpp"

#include "npu_train/nn/rank_gather.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// A model that returns given features.
struct GivenFeatures : torch::nn::Module {
  at::Tensor images, texts, scale = torch::tensor(10.0f);
  Outputs forward(const Batch&) {
    if (!texts.defined()) return images;
    return Outputs({{"image_features", images}, {"text_features", texts}, {"scale", scale}});
  }
};

at::Tensor unit(const at::Tensor& x) { return x / x.norm(2, {1}, true); }

Batch pairs(int64_t rows, int64_t real) {
  Batch out;
  out.set("input", torch::zeros({rows, 3, 2, 2}));
  out.size = real;
  return out;
}

double metric(const std::shared_ptr<Task>& task, const StepOutput& output, const Batch& batch, size_t i) {
  return task->metric_sums(output, batch)[static_cast<int64_t>(i)].item<double>();
}

}  // namespace

TEST_CASE("the loss is the mean of both cross entropies, over the real pairs") {
  torch::manual_seed(1);
  auto net = std::make_shared<GivenFeatures>();
  const auto task = contrastive(as_model(net));
  net->images = unit(torch::randn({5, 8})), net->texts = unit(torch::randn({5, 8}));
  for (const int64_t real : {5, 3}) {
    const auto output = task->training_step(pairs(5, real));
    const auto logits = 10 * torch::matmul(net->images.narrow(0, 0, real), net->texts.narrow(0, 0, real).t());
    const auto own = torch::arange(real, at::kLong);
    const auto expected = (torch::nn::functional::cross_entropy(logits, own) + torch::nn::functional::cross_entropy(logits.t(), own)) / 2;
    CHECK(output.loss.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-6));
    CHECK(output.weight == static_cast<double>(real));
  }
}

TEST_CASE("recalls: the share of the images whose text is among the most similar ones, and the reverse") {
  auto net = std::make_shared<GivenFeatures>();
  const auto task = contrastive(as_model(net));
  CHECK(task->metric_names() == std::vector<std::string>{"text_recall1", "text_recall5", "image_recall1", "image_recall5"});
  // Image i equals text i, but the texts of images 0 and 1 are exchanged.
  const auto like = torch::eye(8);
  net->images = like.clone();
  net->texts = like.index_select(0, torch::tensor({1, 0, 2, 3, 4, 5, 6, 7}));
  const auto batch = pairs(8, 8);
  const auto output = task->training_step(batch);
  CHECK(metric(task, output, batch, 0) == 600);
  CHECK(metric(task, output, batch, 2) == 600);
  CHECK(metric(task, output, batch, 1) == 600);  // ties count against a pair, and all other texts are equally dissimilar
  net->texts = torch::ones({8, 8});
  const auto equal = task->training_step(batch);
  CHECK(metric(task, equal, batch, 0) == 0);
  // Text i is most similar to image 0, and then to image i.
  net->texts = like * 0.5;
  net->texts.select(1, 0).fill_(1);
  const auto first = task->training_step(batch);
  CHECK(metric(task, first, batch, 2) == 100);
  CHECK(metric(task, first, batch, 3) == 800);
  CHECK(metric(task, first, batch, 0) == 700);  // image 0 is equally similar to all texts
}

TEST_CASE("across ranks the loss is that of all pairs, and the metrics are of one's own") {
  torch::manual_seed(2);
  const auto images = unit(torch::randn({6, 8})), texts = unit(torch::randn({6, 8}));
  auto net = std::make_shared<GivenFeatures>();
  const auto task = contrastive(as_model(net));
  const auto run = [&](int64_t first, int64_t count, std::shared_ptr<const ForwardContext::Ranks> ranks = nullptr) {
    net->images = images.narrow(0, first, count).clone().requires_grad_(true);
    net->texts = texts.narrow(0, first, count).clone().requires_grad_(true);
    net->scale = torch::tensor(10.0f).requires_grad_(true);
    return task->training_step({pairs(count, count), 0, std::move(ranks)});
  };
  const auto one = run(0, 6);
  one.loss.backward();
  const auto image_grad = net->images.grad().clone(), text_grad = net->texts.grad().clone(), scale_grad = net->scale.grad().clone();
  const auto sums = task->metric_sums(one, pairs(6, 6));
  auto sums_of_ranks = torch::zeros_like(sums);
  auto scale_of_ranks = torch::zeros({});
  const std::vector<std::pair<int64_t, int64_t>> parts = {{0, 4}, {4, 2}};
  for (size_t r = 0; r < 2; ++r) {
    int call = 0;
    const auto ranks = std::make_shared<const ForwardContext::Ranks>(ForwardContext::Ranks{
        [&](const std::vector<double>&) {
          std::vector<std::vector<double>> out;
          for (const auto& [first, count] : parts) {
            const auto rows = (call == 0 ? images : texts).narrow(0, first, count).to(at::kDouble).contiguous();
            out.push_back({8});
            out.back().insert(out.back().end(), rows.const_data_ptr<double>(), rows.const_data_ptr<double>() + rows.numel());
          }
          ++call;
          return out;
        },
        r});
    const auto first = parts[r].first, count = parts[r].second;
    const auto output = run(first, count, ranks);
    CHECK(call == 2);
    CHECK(output.weight == static_cast<double>(count));
    CHECK(output.loss.item<double>() == doctest::Approx(one.loss.item<double>()).epsilon(1e-6));
    (output.loss * (static_cast<double>(count) / 6)).backward();
    CHECK(torch::allclose(net->images.grad(), image_grad.narrow(0, first, count), 1e-4, 1e-6));
    CHECK(torch::allclose(net->texts.grad(), text_grad.narrow(0, first, count), 1e-4, 1e-6));
    scale_of_ranks += net->scale.grad();
    sums_of_ranks += task->metric_sums(output, pairs(count, count));
  }
  CHECK(torch::allclose(scale_of_ranks, scale_grad, 1e-4, 1e-6));
  CHECK(torch::equal(sums_of_ranks, sums));
}

TEST_CASE("other outputs are an error by name") {
  auto net = std::make_shared<GivenFeatures>();
  const auto task = contrastive(as_model(net));
  net->images = torch::zeros({2, 3});
  const auto error = error_of([&] { task->training_step(pairs(2, 2)); });
  CHECK(((error.kind() == ErrorKind::Usage)));
  CHECK_MESSAGE(std::string(error.what()).find("image_features, text_features and scale") != std::string::npos, error.what());
  net->texts = torch::zeros({2, 3});
  const auto rows = error_of([&] { task->training_step(pairs(3, 3)); });
  CHECK_MESSAGE(std::string(rows.what()).find("for a batch of 3") != std::string::npos, rows.what());
}
