// Weights, images and fingerprints of gradients as scripts/pytorch_reference.py computes them, and the numbers that it has written.
#pragma once

#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train::testing {

namespace formula_detail {

inline uint64_t fnv1a(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

inline uint64_t mix(uint64_t start, uint64_t index) {
  uint64_t z = start + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace formula_detail

/// Returns numbers in [-1, 1) that follow from (name, index), with 24 bits each, as float64 of the shape.
inline at::Tensor formula(const std::string& name, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, at::kDouble);
  const uint64_t start = formula_detail::fnv1a(name);
  double* p = out.data_ptr<double>();
  for (int64_t i = 0; i < out.numel(); ++i)
    p[i] = static_cast<double>(formula_detail::mix(start, static_cast<uint64_t>(i)) >> 40) * 0x1p-23 - 1.0;
  return out;
}

/// Returns initial values of a parameter: matrices scaled by their fan-in, norms around 1, the rest small.
inline at::Tensor formula_weight(const std::string& name, at::IntArrayRef shape) {
  const at::Tensor u = formula(name, shape);
  if (!name.ends_with("weight")) return u * 0.05;
  if (shape.size() == 4) return u * std::sqrt(6.0 / static_cast<double>(shape[1] * shape[2] * shape[3]));
  if (shape.size() == 2) return u * std::sqrt(3.0 / static_cast<double>(shape[1]));
  return u * 0.1 + 1.0;
}

/// Fills every parameter by formula; those whose names end with `scaled` are multiplied by `by`.
inline void fill_by_formula(const Model& model, const std::string& scaled = "", double by = 1.0) {
  c10::AutoGradMode no_grad(false);
  for (const auto& p : parameters_of(*model.module))
    p.value.copy_(formula_weight(p.name, p.value.sizes()) * (!scaled.empty() && p.name.ends_with(scaled) ? by : 1.0));
}

/// Returns images [batch, 3, side, side] of unit variance.
inline at::Tensor formula_images(const std::string& name, int64_t batch, int64_t side) {
  return (formula(name, {batch, 3, side, side}) * std::sqrt(3.0)).to(at::kFloat);
}

/// Returns integer classes for step `step`.
inline at::Tensor formula_labels(int64_t batch, int64_t classes, int64_t step) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batch; ++i) out.push_back((7 * i + 3 + 5 * step) % classes);
  return at::tensor(out, at::kLong);
}

struct Fingerprint {
  double norm = 0;
  std::array<double, 16> sums{};  ///< sums with random signs
};
inline Fingerprint fingerprint(const std::string& name, const at::Tensor& gradient) {
  const at::Tensor g = gradient.detach().to(at::kDouble).contiguous();
  const double* p = g.data_ptr<double>();
  const uint64_t start = formula_detail::fnv1a("sign." + name);
  Fingerprint out;
  double squares = 0;
  for (int64_t i = 0; i < g.numel(); ++i) {
    const uint64_t bits = formula_detail::mix(start, static_cast<uint64_t>(i));
    squares += p[i] * p[i];
    for (size_t j = 0; j < out.sums.size(); ++j) out.sums[j] += (bits >> j & 1) != 0 ? p[i] : -p[i];
  }
  out.norm = std::sqrt(squares);
  return out;
}

/// Returns the cosine of two gradients from their fingerprints: the mean squared difference of the sums estimates the squared distance
/// without bias.
inline double cosine(const Fingerprint& a, const Fingerprint& b) {
  if (a.norm == 0 || b.norm == 0) return a.norm == b.norm ? 1.0 : 0.0;
  double apart = 0;
  for (size_t j = 0; j < a.sums.size(); ++j) apart += (a.sums[j] - b.sums[j]) * (a.sums[j] - b.sums[j]);
  apart /= static_cast<double>(a.sums.size());
  return (a.norm * a.norm + b.norm * b.norm - apart) / (2 * a.norm * b.norm);
}

/// Returns the numbers that plain PyTorch has computed: tests/fixtures/<name>_reference.json.
inline nlohmann::json fixture(const std::string& name) {
  std::ifstream in(std::string(NPU_TRAIN_SOURCE_DIR) + "/tests/fixtures/" + name + "_reference.json");
  REQUIRE(in.good());
  return nlohmann::json::parse(in);
}

}  // namespace npu_train::testing
