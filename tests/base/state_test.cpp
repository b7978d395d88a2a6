#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <set>

#include "npu_train/base/state.hpp"

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

TEST_CASE("a digest sees values, shape and dtype, not strides") {
  const auto t = at::arange(12, at::kFloat).reshape({3, 4});
  CHECK(digest(t) == digest(t.clone()));
  CHECK(digest(t.t().contiguous().t()) == digest(t));
  CHECK(digest(t.t()) != digest(t));
  CHECK(digest(t.reshape({4, 3})) != digest(t));
  CHECK(digest(t.to(at::kDouble)) != digest(t));
  CHECK(digest(t.requires_grad_()) == digest(t.detach()));
  auto changed = t.detach().clone();
  changed.view(-1)[5] = std::nextafter(5.f, 6.f);
  CHECK(digest(changed) != digest(t));
  auto minus_zero = at::zeros({1});
  const auto zero = digest(minus_zero);
  minus_zero.neg_();
  CHECK(digest(minus_zero) != zero);  // compares bit for bit
  CHECK(digest(at::zeros({0, 3})) != digest(at::zeros({0, 4})));
  CHECK(digest(at::Tensor()) != digest(at::zeros({0})));
  CHECK_THROWS_AS(digest(at::zeros({2, 2}).to_sparse()), Error);
}

TEST_CASE("a digest of a set sees names and order") {
  const auto a = at::arange(3, at::kFloat), b = at::arange(4, at::kFloat);
  const auto value = digest(ParameterSet({{"a", a}, {"b", b}}));
  CHECK(value == digest(ParameterSet({{"a", a.clone()}, {"b", b}})));
  CHECK(value != digest(ParameterSet({{"b", b}, {"a", a}})));
  CHECK(value != digest(ParameterSet({{"a", a}, {"c", b}})));
}

TEST_CASE("a digest of a state sees every value and its type") {
  State state;
  const auto empty = digest(state);
  state.values["x"] = int64_t{1};
  const auto integer = digest(state);
  state.values["x"] = 1.0;
  const auto number = digest(state);
  state.values["x"] = std::string("1");
  const auto text = digest(state);
  state.tensors["x"] = at::zeros({1});
  const auto tensor = digest(state);
  CHECK(std::set<uint64_t>{empty, integer, number, text, tensor}.size() == 5);
  state.values["x"] = std::numeric_limits<double>::quiet_NaN();
  CHECK(digest(state) == digest(state));
}
