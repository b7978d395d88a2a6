#include "npu_train/kernels/batch_norm.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/batch_norm_kernels.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/kernels/running_updates.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kBatchNormAct = "batch_norm_act";
constexpr int64_t kGrain = 1 << 15;  // number of values that justifies another thread

// Calls fn(T{}) with the storage type of `dtype`.
template <class Fn>
auto stored_as(at::ScalarType dtype, Fn fn) {
  if (dtype == at::kBFloat16) return fn(c10::BFloat16());
  if (dtype == at::kHalf) return fn(c10::Half());
  return fn(float());
}

// The memory layout of x: rows with one value per channel, or planes of one channel.
struct Layout {
  bool rows;
  at::MemoryFormat format;
  int64_t batch, channels, inner;

  static Layout of(const at::Tensor& x) {
    Layout layout{false, at::MemoryFormat::Contiguous, x.size(0), x.size(1), 1};
    for (int64_t d = 2; d < x.dim(); ++d) layout.inner *= x.size(d);
    const at::MemoryFormat wanted = x.suggest_memory_format();
    if (x.is_contiguous(wanted)) layout.format = wanted;
    layout.rows = layout.format != at::MemoryFormat::Contiguous || layout.inner == 1;
    return layout;
  }
  int64_t values() const { return batch * inner; }  // per channel
};

// The division of rows into chunks. The number of chunks depends only on the sizes, so that sums are equal for any number of threads.
struct Chunks {
  int64_t rows, size, count;

  explicit Chunks(const Layout& layout) : rows(layout.values()) {
    constexpr int64_t kMost = 64;
    const int64_t least = std::max<int64_t>(8, kGrain / layout.channels);
    size = std::max(least, (rows + kMost - 1) / kMost);
    count = (rows + size - 1) / size;
  }
  int64_t begin(int64_t chunk) const { return chunk * size; }
  int64_t length(int64_t chunk) const { return std::min(size, rows - begin(chunk)); }
};

// Calls on_rows(chunk, offset, rows) for all chunks, or on_channel(channel, offset, planes) for all channels, on all threads.
template <class RowsFn, class PlanesFn>
void for_all(const Layout& layout, RowsFn on_rows, PlanesFn on_channel) {
  if (layout.rows) {
    const Chunks chunks(layout);
    at::parallel_for(0, chunks.count, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) on_rows(i, chunks.begin(i) * layout.channels, NormRows{chunks.length(i), layout.channels});
    });
  } else {
    const NormPlanes planes{layout.batch, layout.inner, layout.channels * layout.inner};
    at::parallel_for(0, layout.channels, std::max<int64_t>(1, kGrain / layout.values()), [&](int64_t from, int64_t to) {
      for (int64_t c = from; c < to; ++c) on_channel(c, c * layout.inner, planes);
    });
  }
}

struct Statistics {
  std::vector<double> mean, variance;  // biased
};

template <class T>
Statistics statistics(const Layout& layout, const T* x) {
  const int64_t channels = layout.channels;
  Statistics s{std::vector<double>(channels), std::vector<double>(channels)};
  const Chunks chunks(layout);
  std::vector<double> means, squares;
  if (layout.rows) {
    means.resize(chunks.count * channels);
    squares.resize(chunks.count * channels);
  }
  for_all(
      layout,
      [&](int64_t i, int64_t at, NormRows n) { norm_kernels<T>().rows_moments(n, x + at, &means[i * channels], &squares[i * channels]); },
      [&](int64_t c, int64_t at, NormPlanes n) { norm_kernels<T>().planes_moments(n, x + at, &s.mean[c], &s.variance[c]); });
  if (layout.rows) {
    for (int64_t i = 0; i < chunks.count; ++i) {
      const auto seen = static_cast<double>(chunks.begin(i)), more = static_cast<double>(chunks.length(i)), weight = more / (seen + more);
      for (int64_t c = 0; c < channels; ++c) {
        const double delta = means[i * channels + c] - s.mean[c];
        s.mean[c] += delta * weight;
        s.variance[c] += squares[i * channels + c] + delta * delta * weight * seen;
      }
    }
  }
  for (double& v : s.variance) v /= static_cast<double>(layout.values());
  return s;
}

// Computes running = (1 - momentum) * running + momentum * factor * values.
void move_by_values(const at::Tensor& running, const std::vector<double>& values, double momentum, double factor) {
  if (!running.defined()) return;
  std::vector<double> added(values.size());
  for (size_t c = 0; c < values.size(); ++c) added[c] = momentum * factor * values[c];
  auto* updates = RunningUpdates::current();
  if (updates != nullptr) updates->updates().push_back({running, running.clone(), 1 - momentum, added});
  move_running(running, 1 - momentum, added);
}

// Returns [2, C]: mean and 1 / sqrt(variance + eps).
at::Tensor mean_and_invstd(const Statistics& s, double eps, const at::TensorOptions& options) {
  const auto channels = static_cast<int64_t>(s.mean.size());
  at::Tensor saved = at::empty({2, channels}, options);
  float* to = saved.data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    to[c] = static_cast<float>(s.mean[c]);
    to[channels + c] = static_cast<float>(1 / std::sqrt(s.variance[c] + eps));
  }
  return saved;
}

// Computes y = (x - mean) * scale + bias. Owns the scale; mean and bias point into tensors.
class Affine {
 public:
  Affine(const at::Tensor& saved, const at::Tensor& weight, const at::Tensor& bias)
      : scale_(saved.size(1)), mean_(saved.const_data_ptr<float>()), bias_(bias.const_data_ptr<float>()) {
    const float *invstd = mean_ + scale_.size(), *gamma = weight.const_data_ptr<float>();
    for (size_t c = 0; c < scale_.size(); ++c) scale_[c] = gamma[c] * invstd[c];
  }
  NormAffine at(int64_t channel) const { return {mean_ + channel, &scale_[channel], bias_ + channel}; }

 private:
  std::vector<float> scale_;
  const float *mean_, *bias_;
};

template <class T>
at::Tensor normalise_as(const Layout& layout, const at::Tensor& x, const at::Tensor& saved, const at::Tensor& weight,
                        const at::Tensor& bias, const at::Tensor& residual, bool relu) {
  at::Tensor y = at::empty(x.sizes(), x.options(), layout.format);
  const T *from = x.const_data_ptr<T>(), *add = residual.defined() ? residual.const_data_ptr<T>() : nullptr;
  const Affine affine(saved, weight, bias);
  T* to = y.data_ptr<T>();
  const auto plus = [](const T* p, int64_t n) { return p ? p + n : nullptr; };
  for_all(
      layout,
      [&](int64_t, int64_t at, NormRows n) { norm_kernels<T>().rows_apply(n, from + at, plus(add, at), affine.at(0), relu, to + at); },
      [&](int64_t c, int64_t at, NormPlanes n) {
        norm_kernels<T>().planes_apply(n, from + at, plus(add, at), affine.at(c), relu, to + at);
      });
  return y;
}

at::Tensor normalise(const Layout& layout, const at::Tensor& x, const at::Tensor& saved, const at::Tensor& weight, const at::Tensor& bias,
                     const at::Tensor& residual, bool relu) {
  return stored_as(x.scalar_type(), [&]<class T>(T) { return normalise_as<T>(layout, x, saved, weight, bias, residual, relu); });
}

struct Sums {
  std::vector<double> g, gx;  // sums of the gradient, and of the gradient times (x - mean)
};

// The tensors that NormGrad points to; y is undefined if the mask follows from x.
struct Incoming {
  at::Tensor x, dy, y;
  bool relu;
  template <class T>
  NormGrad<T> at(int64_t offset) const {
    return {x.const_data_ptr<T>() + offset, dy.const_data_ptr<T>() + offset, y.defined() ? y.const_data_ptr<T>() + offset : nullptr, relu};
  }
};

// `masked` receives the gradient after the ReLU's mask; it is undefined if the caller does not need that gradient.
template <class T>
Sums gradient_sums(const Layout& layout, const Incoming& in, const Affine& affine, const at::Tensor& masked) {
  const int64_t channels = layout.channels;
  const auto parts = layout.rows ? Chunks(layout).count : 1;
  std::vector<double> g(parts * channels, 0.0), gx(parts * channels, 0.0);
  T* to = masked.defined() ? masked.data_ptr<T>() : nullptr;
  const auto& kernels = norm_kernels<T>();
  for_all(
      layout,
      [&](int64_t i, int64_t at, NormRows n) {
        kernels.rows_sums(n, in.at<T>(at), affine.at(0), to ? to + at : nullptr, &g[i * channels], &gx[i * channels]);
      },
      [&](int64_t c, int64_t at, NormPlanes n) {
        kernels.planes_sums(n, in.at<T>(at), affine.at(c), to ? to + at : nullptr, &g[c], &gx[c]);
      });
  for (int64_t i = 1; i < parts; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      g[c] += g[i * channels + c];
      gx[c] += gx[i * channels + c];
    }
  }
  g.resize(channels);
  gx.resize(channels);
  return {std::move(g), std::move(gx)};
}

template <class T>
at::Tensor input_gradient(const Layout& layout, const Incoming& in, const Affine& affine, const float* invstd, const Sums& sums) {
  std::vector<float> p(layout.channels), q(layout.channels);
  const double n = static_cast<double>(layout.values());
  for (int64_t c = 0; c < layout.channels; ++c) {
    const double scale = *affine.at(c).scale, inverse = invstd[c];
    p[c] = static_cast<float>(scale * inverse * inverse * sums.gx[c] / n);
    q[c] = static_cast<float>(scale * sums.g[c] / n);
  }
  at::Tensor dx = at::empty(in.x.sizes(), in.x.options(), layout.format);
  T* to = dx.data_ptr<T>();
  const auto& kernels = norm_kernels<T>();
  for_all(
      layout,
      [&](int64_t, int64_t at, NormRows rows) {
        kernels.rows_gradient(rows, in.at<T>(at), affine.at(0), {p.data(), q.data()}, to + at);
      },
      [&](int64_t c, int64_t at, NormPlanes planes) {
        kernels.planes_gradient(planes, in.at<T>(at), affine.at(c), {&p[c], &q[c]}, to + at);
      });
  return dx;
}

at::Tensor per_channel(const std::vector<double>& values, const float* factor, const at::TensorOptions& options) {
  at::Tensor t = at::empty({static_cast<int64_t>(values.size())}, options);
  float* to = t.data_ptr<float>();
  for (size_t c = 0; c < values.size(); ++c) to[c] = static_cast<float>(factor ? values[c] * factor[c] : values[c]);
  return t;
}

class TrainingNorm : public torch::autograd::Function<TrainingNorm> {
 public:
  // Takes `bn` as one argument, so that autograd does not treat the running statistics as inputs.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual, const BatchNormArgs& bn, bool relu) {
    const Layout layout = Layout::of(input);
    const at::Tensor x = input.contiguous(layout.format);
    const Statistics s = stored_as(x.scalar_type(), [&]<class T>(T) { return statistics(layout, x.const_data_ptr<T>()); });
    const double n = static_cast<double>(layout.values());
    if (bn.training) {
      move_by_values(bn.running_mean, s.mean, bn.momentum, 1);
      move_by_values(bn.running_var, s.variance, bn.momentum, n / (n - 1));
    }
    const at::Tensor saved = mean_and_invstd(s, bn.eps, weight.options());
    at::Tensor y = normalise(layout, x, saved, weight, bias, residual ? residual->contiguous(layout.format) : at::Tensor(), relu);
    ctx->saved_data["residual"] = residual.has_value();
    ctx->saved_data["relu"] = relu;
    // Saves y only with a ReLU and a residual: the ReLU's mask then follows only from y. Without a residual, the mask follows from x.
    ctx->save_for_backward({x, weight, bias, saved, relu && residual ? y : at::Tensor()});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& grads) {
    check(!at::GradMode::is_enabled(), ErrorKind::Usage, kBatchNormAct,
          "its backward cannot be differentiated (double backward); use at::batch_norm, or switch fused kernels off in the model");
    torch::autograd::variable_list out(6);
    if (!grads[0].defined()) return out;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &moments = saved[3];
    const Layout layout = Layout::of(x);
    Incoming in{x, grads[0].contiguous(layout.format), saved[4], ctx->saved_data["relu"].toBool()};
    const Affine affine(moments, weight, saved[2]);
    const bool with_residual = ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(3);
    const at::Tensor masked = with_residual && in.relu ? at::empty(x.sizes(), x.options(), layout.format) : at::Tensor();
    const float* invstd = moments.const_data_ptr<float>() + layout.channels;
    const Sums sums = stored_as(x.scalar_type(), [&]<class T>(T) {
      Sums found = gradient_sums<T>(layout, in, affine, masked);
      if (masked.defined()) in = {x, masked, {}, false};  // `masked` replaces both the gradient and the mask
      if (ctx->needs_input_grad(0)) out[0] = input_gradient<T>(layout, in, affine, invstd, found);
      return found;
    });
    if (ctx->needs_input_grad(1)) out[1] = per_channel(sums.gx, invstd, weight.options());
    if (ctx->needs_input_grad(2)) out[2] = per_channel(sums.g, nullptr, weight.options());
    if (with_residual) out[3] = in.dy;
    return out;
  }
};

bool is_plain(const at::Tensor& t, at::ScalarType dtype) {
  return t.defined() && t.is_cpu() && t.scalar_type() == dtype && t.layout() == at::kStrided && !t.is_neg();
}
bool is_vector(const at::Tensor& t) { return is_plain(t, at::kFloat) && t.is_contiguous(); }
bool is_stored(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf; }

}  // namespace

bool has_batch_norm_kernel(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual) {
  return is_plain(x, x.scalar_type()) && is_stored(x.scalar_type()) && x.numel() > 0 && is_vector(bn.weight) && is_vector(bn.bias) &&
         (!residual.defined() || is_plain(residual, x.scalar_type())) && (!bn.running_mean.defined() || is_vector(bn.running_mean)) &&
         (!bn.running_var.defined() || is_vector(bn.running_var));
}

at::Tensor train_batch_norm(const at::Tensor& x, const BatchNormArgs& bn, const at::Tensor& residual, bool relu) {
  const auto add = residual.defined() ? std::optional<at::Tensor>(residual) : std::nullopt;
  return TrainingNorm::apply(x, bn.weight, bn.bias, add, bn, relu);
}

at::Tensor evaluate_batch_norm(const at::Tensor& input, const BatchNormArgs& bn, const at::Tensor& residual, bool relu) {
  const Layout layout = Layout::of(input);
  Statistics s;
  s.mean.assign(bn.running_mean.const_data_ptr<float>(), bn.running_mean.const_data_ptr<float>() + layout.channels);
  s.variance.assign(bn.running_var.const_data_ptr<float>(), bn.running_var.const_data_ptr<float>() + layout.channels);
  return normalise(layout, input.contiguous(layout.format), mean_and_invstd(s, bn.eps, bn.weight.options()), bn.weight, bn.bias,
                   residual.defined() ? residual.contiguous(layout.format) : residual, relu);
}

}  // namespace npu_train::detail
