#include "formula.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "npu_train/nn/named_state.hpp"

namespace npu_train::testing {
namespace {

uint64_t fnv1a(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

uint64_t mix(uint64_t start, uint64_t index) {
  uint64_t z = start + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

at::Tensor weight(const std::string& name, at::IntArrayRef shape) {
  const at::Tensor u = formula(name, shape);
  if (!ends_with(name, "weight")) return u * 0.05;
  if (shape.size() == 4) return u * std::sqrt(6.0 / static_cast<double>(shape[1] * shape[2] * shape[3]));
  if (shape.size() == 2) return u * std::sqrt(3.0 / static_cast<double>(shape[1]));
  return u * 0.1 + 1.0;
}

}  // namespace

at::Tensor formula(const std::string& name, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, at::kDouble);
  const uint64_t start = fnv1a(name);
  double* p = out.data_ptr<double>();
  for (int64_t i = 0; i < out.numel(); ++i) p[i] = static_cast<double>(mix(start, static_cast<uint64_t>(i)) >> 40) * 0x1p-23 - 1.0;
  return out;
}

void fill_by_formula(const Model& model, const std::string& scaled, double by) {
  c10::AutoGradMode no_grad(false);
  for (const auto& p : parameters_of(*model.module))
    p.value.copy_(weight(p.name, p.value.sizes()) * (!scaled.empty() && ends_with(p.name, scaled) ? by : 1.0));
}

at::Tensor formula_pictures(const std::string& name, int64_t batch, int64_t side) {
  return (formula(name, {batch, 3, side, side}) * std::sqrt(3.0)).to(at::kFloat);
}

at::Tensor formula_labels(int64_t batch, int64_t classes, int64_t step) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batch; ++i) out.push_back((7 * i + 3 + 5 * step) % classes);
  return at::tensor(out, at::kLong);
}

Fingerprint fingerprint(const std::string& name, const at::Tensor& gradient) {
  const at::Tensor g = gradient.detach().to(at::kDouble).contiguous();
  const double* p = g.data_ptr<double>();
  const uint64_t start = fnv1a("sign." + name);
  Fingerprint out;
  double squares = 0;
  for (int64_t i = 0; i < g.numel(); ++i) {
    const uint64_t bits = mix(start, static_cast<uint64_t>(i));
    squares += p[i] * p[i];
    for (size_t j = 0; j < out.sums.size(); ++j) out.sums[j] += (bits >> j & 1) != 0 ? p[i] : -p[i];
  }
  out.norm = std::sqrt(squares);
  return out;
}

double cosine(const Fingerprint& a, const Fingerprint& b) {
  if (a.norm == 0 || b.norm == 0) return a.norm == b.norm ? 1.0 : 0.0;
  double apart = 0;
  for (size_t j = 0; j < a.sums.size(); ++j) apart += (a.sums[j] - b.sums[j]) * (a.sums[j] - b.sums[j]);
  apart /= static_cast<double>(a.sums.size());
  return (a.norm * a.norm + b.norm * b.norm - apart) / (2 * a.norm * b.norm);
}

}  // namespace npu_train::testing
