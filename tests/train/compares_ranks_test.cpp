#include "testing.hpp"

#include "npu_train/train/compares_ranks.hpp"

#include "npu_train/train/contrastive.hpp"
#include "npu_train/train/language_model.hpp"
#include "toy.hpp"

using namespace npu_train;

TEST_CASE("of the library's tasks the contrastive one compares samples across ranks") {
  const auto model = as_model(torch::nn::Sequential(torch::nn::Linear(2, 2)));
  CHECK(dynamic_cast<ComparesRanks*>(contrastive(model).get()) != nullptr);
  CHECK(dynamic_cast<ComparesRanks*>(language_model(model).get()) == nullptr);
  CHECK(dynamic_cast<ComparesRanks*>(classifier(model).get()) == nullptr);
}
