// Double-precision reference of the networks' computations, on Eigen and plain loops. Nothing in it uses ATen.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace npu_train::reference {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;
using ConstMatrixMap = Eigen::Map<const Matrix>;

// The allowed distance of a result from the reference, relative to the reference's largest element.
struct Tolerance {
  at::ScalarType dtype;
  double forward;
  double backward;
};
inline constexpr Tolerance kTolerances[] = {
    {at::kFloat, 3e-6, 1e-5},
    {at::kDouble, 1e-13, 1e-12},
};

// A dense array in which the last index varies fastest.
struct Array {
  std::vector<int64_t> shape;
  std::vector<double> v;

  Array() = default;
  explicit Array(std::vector<int64_t> s) : shape(std::move(s)) {
    int64_t n = 1;
    for (const auto d : shape) n *= d;
    v.assign(static_cast<size_t>(n), 0.0);
  }
  explicit Array(const at::Tensor& t) : Array(t.sizes().vec()) {
    const at::Tensor d = t.detach().to(at::kDouble).contiguous();
    std::copy_n(d.data_ptr<double>(), v.size(), v.begin());
  }
  int64_t size(size_t d) const { return shape[d]; }
  double* data() { return v.data(); }
  const double* data() const { return v.data(); }
  // Length of a row, the last dimension.
  int64_t columns() const { return shape.back(); }
  int64_t rows() const { return static_cast<int64_t>(v.size()) / columns(); }
  MatrixMap matrix() { return {data(), rows(), columns()}; }
  ConstMatrixMap matrix() const { return {data(), rows(), columns()}; }
};

inline Array operator+(Array a, const Array& b) {
  for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i];
  return a;
}

// Returns the largest difference, relative to the largest expected element.
inline double apart(const at::Tensor& got, const Array& expected) {
  const Array g(got);
  if (g.v.size() != expected.v.size()) return INFINITY;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < g.v.size(); ++i) {
    if (!std::isfinite(g.v[i])) return INFINITY;
    worst = std::max(worst, std::abs(g.v[i] - expected.v[i]));
    largest = std::max(largest, std::abs(expected.v[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

// Returns deterministic values of about unit size, exact in fp32.
inline at::Tensor values(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype, double scale = 1.0) {
  Array a(shape.vec());
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + 1;
  for (auto& x : a.v) {
    z = z * 6364136223846793005ull + 1442695040888963407ull;
    x = static_cast<float>((static_cast<double>(z >> 40) * 0x1p-23 - 1.0) * 1.7 * scale);
  }
  return at::from_blob(a.data(), shape, at::kDouble).clone().to(dtype);
}

inline at::Tensor leaf(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype, double scale = 1.0) {
  return values(shape, seed, dtype, scale).requires_grad_(true);
}

}  // namespace npu_train::reference
