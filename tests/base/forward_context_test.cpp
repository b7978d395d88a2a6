#include "testing.hpp"

#include "npu_train/base/forward_context.hpp"

#include <ATen/ops/full.h>

using namespace npu_train;

namespace {

Batch batch_of(double scale) {
  Batch out;
  out.set("scale", at::full({1}, scale));
  return out;
}

double number(const at::Tensor& t) { return t.item<double>(); }

}  // namespace

TEST_CASE("values that are put hide fields of the batch, for all copies, and leave the batch as it is") {
  const ForwardContext context(batch_of(2));
  const ForwardContext copy = context;
  CHECK(number(context.get("scale")) == 2);
  CHECK_FALSE(context.get("other").defined());
  context.put("other", at::full({1}, 3.0));
  context.put("scale", at::full({1}, 4.0));
  CHECK(number(copy.get("other")) == 3);
  CHECK(number(copy.get("scale")) == 4);
  CHECK(number(context.batch().at("scale")) == 2);
  CHECK_FALSE(context.batch().has("other"));
}

TEST_CASE("each network of a pass has its own values and outputs, the latter while they exist") {
  const ForwardContext context(batch_of(2), /*draw_key=*/7);
  context.give("ignored", at::full({1}, 1.0));  // ignored, because the block runs outside of a network
  auto outputs = std::make_shared<std::vector<Outputs::Field>>();
  const auto network = context.of_network(outputs);
  CHECK(network.draw_key() == 7);
  network.put("scale", at::full({1}, 5.0));
  CHECK(number(context.get("scale")) == 2);
  network.give("a", at::full({1}, 1.0));
  network.give("b", at::full({1}, 2.0));
  REQUIRE(outputs->size() == 2);
  CHECK((*outputs)[1].first == "b");
  outputs.reset();
  network.give("c", at::full({1}, 3.0));
  CHECK(number(network.get("scale")) == 5);
}

TEST_CASE("another batch is of the same pass") {
  const auto ranks = std::make_shared<const ForwardContext::Ranks>(ForwardContext::Ranks{nullptr, 3});
  const ForwardContext context(batch_of(2), 7, ranks);
  context.put("put", at::full({1}, 1.0));
  const auto other = context.with(batch_of(4));
  CHECK(number(other.get("scale")) == 4);
  CHECK_FALSE(other.get("put").defined());
  CHECK(other.draw_key() == 7);
  CHECK(other.ranks()->rank == 3);
  CHECK(ForwardContext().ranks() == nullptr);
}
