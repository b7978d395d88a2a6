#include "testing.hpp"

#include "npu_train/engine/progress.hpp"

#include <torch/nn.h>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;

namespace {
std::string output_of(bool bar) {
  std::string text;
  torch::manual_seed(1);
  const auto data = std::make_shared<TensorDataset>(torch::randn({40, 4}), torch::randint(3, {40}), 3);
  Trainer trainer({.device = "cpu", .data = {.options = {{"batch_size", 4}}}, .trainer = {.max_epochs = 2}, .output = {.dir = ""}});
  trainer.add_callback(std::make_shared<Progress>([&](const std::string& part) { text += part; }, bar, 5));
  trainer.fit(classifier(torch::nn::Sequential(torch::nn::Linear(4, 3))), data, data);
  return text;
}
}  // namespace

TEST_CASE("plain lines carry what people look for, at the given rhythm and at the end of an epoch") {
  const auto text = output_of(false);
  for (const char* word :
       {"epoch 1/2  step 5/10", "step 10/10", "eta ", "loss ", "acc1 ", "lr 0.1", "img/s", "data ", "mem ", "epoch 2 done:", "| val"}) {
    CAPTURE(word);
    CHECK(text.find(word) != std::string::npos);
  }
  CHECK(text.find('\r') == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
}

TEST_CASE("a bar replaces its line and ends with a line break before anything else is written") {
  const auto text = output_of(true);
  CHECK(text.find("\r\033[K[") != std::string::npos);
  CHECK(text.find("\nepoch 1 done:") != std::string::npos);
}
