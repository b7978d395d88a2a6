// Reference implementations of layers on [N, C, H, W]: convolution, pooling, batch normalisation.
#pragma once

#include "reference/tensor.hpp"

namespace npu_train::reference {

inline int64_t out_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding) { return (in + 2 * padding - kernel) / stride + 1; }

// Calls fn(row of the patch matrix, column of it, index into one sample's [C, H, W]) for each tap inside the image.
template <class Fn>
void for_patches(const std::vector<int64_t>& x, int64_t kernel, int64_t stride, int64_t padding, Fn fn) {
  const int64_t oh = out_size(x[2], kernel, stride, padding), ow = out_size(x[3], kernel, stride, padding);
  for (int64_t c = 0; c < x[1]; ++c)
    for (int64_t ky = 0; ky < kernel; ++ky)
      for (int64_t kx = 0; kx < kernel; ++kx)
        for (int64_t y = 0; y < oh; ++y)
          for (int64_t z = 0; z < ow; ++z) {
            const int64_t iy = y * stride + ky - padding, ix = z * stride + kx - padding;
            if (iy >= 0 && iy < x[2] && ix >= 0 && ix < x[3]) fn((c * kernel + ky) * kernel + kx, y * ow + z, (c * x[2] + iy) * x[3] + ix);
          }
}

struct Conv {
  int64_t stride = 1;
  int64_t padding = 0;

  Array forward(const Array& x, const Array& w, const Array& b = {}) const {
    const int64_t k = w.size(2), oh = out_size(x.size(2), k, stride, padding), ow = out_size(x.size(3), k, stride, padding);
    Array y({x.size(0), w.size(0), oh, ow});
    for (int64_t n = 0; n < x.size(0); ++n) {
      MatrixMap out(y.data() + n * w.size(0) * oh * ow, w.size(0), oh * ow);
      out = ConstMatrixMap(w.data(), w.size(0), x.size(1) * k * k) * patches(x, n, k, oh * ow);
      if (!b.v.empty()) out.colwise() += Eigen::Map<const Eigen::VectorXd>(b.data(), w.size(0));
    }
    return y;
  }

  struct Grads {
    Array x, w, b;
  };
  Grads backward(const Array& dy, const Array& x, const Array& w) const {
    const int64_t k = w.size(2), in = x.size(1) * k * k, pixels = dy.size(2) * dy.size(3), sample = x.size(1) * x.size(2) * x.size(3);
    Grads g{Array(x.shape), Array(w.shape), Array({w.size(0)})};
    for (int64_t n = 0; n < x.size(0); ++n) {
      const ConstMatrixMap d(dy.data() + n * w.size(0) * pixels, w.size(0), pixels);
      MatrixMap(g.w.data(), w.size(0), in) += d * patches(x, n, k, pixels).transpose();
      Eigen::Map<Eigen::VectorXd>(g.b.data(), w.size(0)) += d.rowwise().sum();
      const Matrix cols = ConstMatrixMap(w.data(), w.size(0), in).transpose() * d;
      for_patches(x.shape, k, stride, padding, [&](int64_t row, int64_t col, int64_t at) { g.x.v[n * sample + at] += cols(row, col); });
    }
    return g;
  }

 private:
  Matrix patches(const Array& x, int64_t n, int64_t k, int64_t pixels) const {
    Matrix out = Matrix::Zero(x.size(1) * k * k, pixels);
    const int64_t sample = x.size(1) * x.size(2) * x.size(3);
    for_patches(x.shape, k, stride, padding, [&](int64_t row, int64_t col, int64_t at) { out(row, col) = x.v[n * sample + at]; });
    return out;
  }
};

// Batch normalisation over N, H, W. `mean` and `var` are the running statistics, which forward updates in training.
struct BatchNorm {
  Array weight, bias, mean, var;
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-5;

  // Saved by forward for backward.
  Array x_hat{};
  std::vector<double> inv_std{};

  Array forward(const Array& x) {
    const int64_t channels = x.size(1), pixels = x.size(2) * x.size(3), count = x.size(0) * pixels;
    Array y(x.shape);
    x_hat = Array(x.shape);
    inv_std.assign(channels, 0);
    for (int64_t c = 0; c < channels; ++c) {
      double m = mean.v[c], v = var.v[c];
      if (training) {
        m = v = 0;
        each(x.shape, c, [&](int64_t i) { m += x.v[i] / static_cast<double>(count); });
        each(x.shape, c, [&](int64_t i) { v += (x.v[i] - m) * (x.v[i] - m) / static_cast<double>(count); });
        mean.v[c] += momentum * (m - mean.v[c]);
        var.v[c] += momentum * (v * static_cast<double>(count) / static_cast<double>(count - 1) - var.v[c]);
      }
      inv_std[c] = 1 / std::sqrt(v + eps);
      each(x.shape, c, [&](int64_t i) {
        x_hat.v[i] = (x.v[i] - m) * inv_std[c];
        y.v[i] = x_hat.v[i] * weight.v[c] + bias.v[c];
      });
    }
    return y;
  }

  struct Grads {
    Array x, weight, bias;
  };
  Grads backward(const Array& dy) const {
    const double count = static_cast<double>(dy.v.size()) / static_cast<double>(dy.size(1));
    Grads g{Array(dy.shape), Array(weight.shape), Array(weight.shape)};
    for (int64_t c = 0; c < dy.size(1); ++c) {
      each(dy.shape, c, [&](int64_t i) {
        g.bias.v[c] += dy.v[i];
        g.weight.v[c] += dy.v[i] * x_hat.v[i];
      });
      each(dy.shape, c, [&](int64_t i) {
        const double centred = training ? dy.v[i] - g.bias.v[c] / count - x_hat.v[i] * g.weight.v[c] / count : dy.v[i];
        g.x.v[i] = weight.v[c] * inv_std[c] * centred;
      });
    }
    return g;
  }

 private:
  template <class Fn>
  static void each(const std::vector<int64_t>& s, int64_t c, Fn fn) {
    for (int64_t n = 0; n < s[0]; ++n)
      for (int64_t p = 0; p < s[2] * s[3]; ++p) fn((n * s[1] + c) * s[2] * s[3] + p);
  }
};

struct MaxPool {
  int64_t kernel = 3, stride = 2, padding = 1;
  std::vector<int64_t> source{};  // for each output, its index in x

  Array forward(const Array& x) {
    const int64_t oh = out_size(x.size(2), kernel, stride, padding), ow = out_size(x.size(3), kernel, stride, padding);
    Array y({x.size(0), x.size(1), oh, ow});
    source.assign(y.v.size(), -1);
    const int64_t sample = x.size(1) * x.size(2) * x.size(3);
    for (int64_t n = 0; n < x.size(0); ++n)
      for_patches(x.shape, kernel, stride, padding, [&](int64_t row, int64_t col, int64_t at) {
        const int64_t out = (n * x.size(1) + row / (kernel * kernel)) * oh * ow + col, in = n * sample + at;
        if (source[out] < 0 || x.v[in] > y.v[out]) y.v[out] = x.v[in], source[out] = in;
      });
    return y;
  }
  Array backward(const Array& dy, const std::vector<int64_t>& x_shape) const {
    Array dx(x_shape);
    for (size_t i = 0; i < dy.v.size(); ++i) dx.v[source[i]] += dy.v[i];
    return dx;
  }
};

// Returns the mean over H and W: [N, C, H, W] -> [N, C].
inline Array global_average(const Array& x) {
  const int64_t pixels = x.size(2) * x.size(3);
  Array y({x.size(0), x.size(1)});
  for (size_t i = 0; i < x.v.size(); ++i) y.v[i / pixels] += x.v[i] / static_cast<double>(pixels);
  return y;
}
inline Array global_average_backward(const Array& dy, const std::vector<int64_t>& x_shape) {
  Array dx(x_shape);
  const int64_t pixels = x_shape[2] * x_shape[3];
  for (size_t i = 0; i < dx.v.size(); ++i) dx.v[i] = dy.v[i / pixels] / static_cast<double>(pixels);
  return dx;
}

}  // namespace npu_train::reference
