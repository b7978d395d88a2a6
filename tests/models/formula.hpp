// Weights, pictures and gradient fingerprints as scripts/pytorch_reference.py computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"

namespace npu_train::testing {

/// Numbers in [-1, 1) for (name, index), 24 bits each, as float64 of the shape.
at::Tensor formula(const std::string& name, at::IntArrayRef shape);

/// Every parameter by formula; those whose names end with `scaled` times `by`.
void fill_by_formula(const Model& model, const std::string& scaled = "", double by = 1.0);

/// [batch, 3, side, side] of unit variance.
at::Tensor formula_pictures(const std::string& name, int64_t batch, int64_t side);

/// Integer classes of step `step`.
at::Tensor formula_labels(int64_t batch, int64_t classes, int64_t step);

struct Fingerprint {
  double norm = 0;
  std::array<double, 16> sums{};  ///< random signed sums
};
Fingerprint fingerprint(const std::string& name, const at::Tensor& gradient);

/// Cosine of two gradients by their fingerprints: mean squared difference of the sums estimates the squared distance without bias.
double cosine(const Fingerprint& a, const Fingerprint& b);

}  // namespace npu_train::testing
