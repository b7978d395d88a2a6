// Reference implementations of layers on [..., features]: linear, layer normalisation, activations, attention, token embedding, cross
// entropy.
#pragma once

#include "reference/tensor.hpp"

namespace npu_train::reference {

inline Array linear(const Array& x, const Array& w, const Array& b = {}) {
  auto shape = x.shape;
  shape.back() = w.size(0);
  Array y(shape);
  y.matrix() = x.matrix() * w.matrix().transpose();
  if (!b.v.empty()) y.matrix().rowwise() += Eigen::Map<const Eigen::RowVectorXd>(b.data(), w.size(0));
  return y;
}
struct LinearGrads {
  Array x, w, b;
};
inline LinearGrads linear_backward(const Array& dy, const Array& x, const Array& w) {
  LinearGrads g{Array(x.shape), Array(w.shape), Array({w.size(0)})};
  g.x.matrix() = dy.matrix() * w.matrix();
  g.w.matrix() = dy.matrix().transpose() * x.matrix();
  Eigen::Map<Eigen::RowVectorXd>(g.b.data(), w.size(0)) = dy.matrix().colwise().sum();
  return g;
}

struct LayerNorm {
  Array weight, bias;
  double eps = 1e-6;
  Array x_hat{};
  std::vector<double> inv_std{};

  Array forward(const Array& x) {
    Array y(x.shape);
    x_hat = Array(x.shape);
    inv_std.assign(x.rows(), 0);
    for (int64_t r = 0; r < x.rows(); ++r) {
      const auto row = x.matrix().row(r).array();
      const double mean = row.mean();
      inv_std[r] = 1 / std::sqrt((row - mean).square().mean() + eps);
      x_hat.matrix().row(r) = (row - mean) * inv_std[r];
      for (int64_t c = 0; c < x.columns(); ++c) y.matrix()(r, c) = x_hat.matrix()(r, c) * weight.v[c] + bias.v[c];
    }
    return y;
  }
  struct Grads {
    Array x, weight, bias;
  };
  Grads backward(const Array& dy) const {
    Grads g{Array(dy.shape), Array(weight.shape), Array(weight.shape)};
    const Eigen::Map<const Eigen::RowVectorXd> gamma(weight.data(), dy.columns());
    for (int64_t r = 0; r < dy.rows(); ++r) {
      const Eigen::ArrayXd h = x_hat.matrix().row(r), d = dy.matrix().row(r);
      Eigen::Map<Eigen::ArrayXd>(g.weight.data(), dy.columns()) += d * h;
      Eigen::Map<Eigen::ArrayXd>(g.bias.data(), dy.columns()) += d;
      const Eigen::ArrayXd s = d * gamma.transpose().array();
      g.x.matrix().row(r) = (s - s.mean() - h * (s * h).mean()) * inv_std[r];
    }
    return g;
  }
};

inline Array relu(Array x) {
  for (auto& v : x.v) v = v > 0 ? v : 0;
  return x;
}
inline Array relu_backward(Array dy, const Array& y) {
  for (size_t i = 0; i < y.v.size(); ++i)
    if (y.v[i] <= 0) dy.v[i] = 0;
  return dy;
}

// Computes x Phi(x), by erf or by tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
struct Gelu {
  bool tanh = false;

  double value(double x) const { return tanh ? 0.5 * x * (1 + std::tanh(inner(x))) : 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
  double slope(double x) const {
    if (!tanh) return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    const double t = std::tanh(inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  }
  Array forward(Array x) const {
    for (auto& v : x.v) v = value(v);
    return x;
  }
  Array backward(Array dy, const Array& x) const {
    for (size_t i = 0; i < x.v.size(); ++i) dy.v[i] *= slope(x.v[i]);
    return dy;
  }

 private:
  static double inner(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
};

inline Matrix softmax_rows(Matrix s) {
  for (int64_t r = 0; r < s.rows(); ++r) {
    s.row(r) = (s.row(r).array() - s.row(r).maxCoeff()).exp();
    s.row(r) /= s.row(r).sum();
  }
  return s;
}

// Computes softmax(q k^T / sqrt(E) + mask) v on [batch, tokens, E]; heads are folded into the batch.
struct Attention {
  Matrix mask{};  // [tokens, tokens], added to the scores; empty: no mask
  std::vector<Matrix> weights{};

  Array forward(const Array& q, const Array& k, const Array& v) {
    Array y(q.shape);
    weights.clear();
    for (int64_t b = 0; b < q.size(0); ++b) {
      Matrix scores = at(q, b) * at(k, b).transpose() / std::sqrt(static_cast<double>(q.size(2)));
      if (mask.size() > 0) scores += mask;
      weights.push_back(softmax_rows(scores));
      at(y, b) = weights.back() * at(v, b);
    }
    return y;
  }
  struct Grads {
    Array q, k, v;
  };
  Grads backward(const Array& dy, const Array& q, const Array& k, const Array& v) const {
    Grads g{Array(q.shape), Array(k.shape), Array(v.shape)};
    for (int64_t b = 0; b < q.size(0); ++b) {
      const Matrix& p = weights[b];
      at(g.v, b) = p.transpose() * at(dy, b);
      const Matrix dp = at(dy, b) * at(v, b).transpose();
      const Eigen::VectorXd dot = (dp.array() * p.array()).rowwise().sum();
      const Matrix ds = (p.array() * (dp.colwise() - dot).array()).matrix() / std::sqrt(static_cast<double>(q.size(2)));
      at(g.q, b) = ds * at(k, b);
      at(g.k, b) = ds.transpose() * at(q, b);
    }
    return g;
  }

 private:
  static MatrixMap at(Array& a, int64_t b) { return {a.data() + b * a.size(1) * a.size(2), a.size(1), a.size(2)}; }
  static ConstMatrixMap at(const Array& a, int64_t b) { return {a.data() + b * a.size(1) * a.size(2), a.size(1), a.size(2)}; }
};

// Puts the class token before the patches [N, T, D] and adds positions [1, T + 1, D].
struct TokenEmbedding {
  Array token, positions;

  Array forward(const Array& patches) const {
    const int64_t tokens = patches.size(1) + 1, dim = patches.size(2);
    Array y({patches.size(0), tokens, dim});
    for (int64_t n = 0; n < y.size(0); ++n)
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t d = 0; d < dim; ++d)
          y.v[(n * tokens + t) * dim + d] =
              positions.v[t * dim + d] + (t == 0 ? token.v[d] : patches.v[(n * (tokens - 1) + t - 1) * dim + d]);
    return y;
  }
  struct Grads {
    Array token, positions, patches;
  };
  Grads backward(const Array& dy) const {
    const int64_t tokens = dy.size(1), dim = dy.size(2);
    Grads g{Array(token.shape), Array(positions.shape), Array({dy.size(0), tokens - 1, dim})};
    for (int64_t n = 0; n < dy.size(0); ++n)
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t d = 0; d < dim; ++d) {
          const double v = dy.v[(n * tokens + t) * dim + d];
          g.positions.v[t * dim + d] += v;
          (t == 0 ? g.token.v[d] : g.patches.v[(n * (tokens - 1) + t - 1) * dim + d]) += v;
        }
    return g;
  }
};

// Computes the mean over samples of -sum_c t_c log p_c, with t = (1 - smoothing) one-hot + smoothing / classes.
struct CrossEntropy {
  double smoothing = 0;

  Matrix targets(const std::vector<int64_t>& labels, int64_t classes) const {
    Matrix t = Matrix::Constant(static_cast<int64_t>(labels.size()), classes, smoothing / static_cast<double>(classes));
    for (size_t i = 0; i < labels.size(); ++i) t(static_cast<int64_t>(i), labels[i]) += 1 - smoothing;
    return t;
  }
  double forward(const Array& logits, const std::vector<int64_t>& labels) const {
    const Matrix p = softmax_rows(logits.matrix()), t = targets(labels, logits.columns());
    return -(t.array() * p.array().log()).sum() / static_cast<double>(labels.size());
  }
  Array backward(const Array& logits, const std::vector<int64_t>& labels) const {
    Array g(logits.shape);
    g.matrix() = (softmax_rows(logits.matrix()) - targets(labels, logits.columns())) / static_cast<double>(labels.size());
    return g;
  }
};

}  // namespace npu_train::reference
