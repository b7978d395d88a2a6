#include "testing.hpp"

#include "npu_train/base/state.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("typed reads of a state name part and key when they fail") {
  State state;
  CHECK(state.empty());
  state.values["steps"] = int64_t{3};
  state.values["lr"] = 0.5;
  state.values["name"] = std::string("sgd");
  state.tensors["momentum/w"] = at::ones({2});
  CHECK_FALSE(state.empty());
  CHECK(state.integer("steps", "optimizer") == 3);
  CHECK(state.number("lr", "optimizer") == 0.5);
  CHECK(state.text("name", "optimizer") == "sgd");
  CHECK(state.tensor("momentum/w", "optimizer").numel() == 2);

  const auto missing = error_of([&] { state.integer("step", "optimizer"); });
  CHECK(missing.kind() == ErrorKind::Checkpoint);
  CHECK(missing.where() == "optimizer");
  CHECK(std::string(missing.what()).find("'step'") != std::string::npos);
  CHECK(std::string(missing.what()).find("lr, name, steps") != std::string::npos);
  const auto type = error_of([&] { state.number("steps", "optimizer"); });
  CHECK(std::string(type.what()).find("is an integer; it must be a number") != std::string::npos);
  CHECK_THROWS_AS(state.text("lr", "x"), Error);
  CHECK_THROWS_AS(state.tensor("momentum/v", "x"), Error);
}
