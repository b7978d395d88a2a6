#include "npu_train/data/mixup.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

/// Draws from Gamma(shape, 1), shape >= 1.
double draw_gamma(double shape, Philox& rng) {
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = rng.normal();
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    const double u = rng.uniform();
    if (u > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

void check_labels(const at::Tensor& labels, int64_t classes) {
  const auto* label = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i)
    check(label[i] >= 0 && label[i] < classes, ErrorKind::Data, "mixup", "a label is ", label[i], "; allowed: 0 to ", classes - 1);
}

/// Returns soft targets: `lambda` for a sample's own label, the rest for its partner's.
at::Tensor soft_targets(const at::Tensor& labels, int64_t real, int64_t classes, double lambda) {
  check_labels(labels, classes);
  const int64_t rows = labels.numel();
  at::Tensor out = at::zeros({rows, classes}, at::kFloat);
  const auto* label = labels.const_data_ptr<int64_t>();
  auto* row = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t partner = i < real ? (i + real - 1) % real : i;
    row[i * classes + label[i]] += static_cast<float>(lambda);
    row[i * classes + label[partner]] += static_cast<float>(1.0 - lambda);
  }
  return out;
}

struct Box {
  int64_t top, bottom, left, right;
};

/// Draws a box of (1 - lambda) of the area around a random centre, cut at the image's borders.
Box draw_box(int64_t height, int64_t width, double lambda, Philox& rng) {
  const double half = 0.5 * std::sqrt(1.0 - lambda);
  const int64_t cy = rng.below(static_cast<uint32_t>(height)), cx = rng.below(static_cast<uint32_t>(width));
  const auto hh = static_cast<int64_t>(half * static_cast<double>(height)), hw = static_cast<int64_t>(half * static_cast<double>(width));
  return {std::max<int64_t>(0, cy - hh), std::min(height, cy + hh), std::max<int64_t>(0, cx - hw), std::min(width, cx + hw)};
}

/// Strides of a batch in either memory format.
struct Walk {
  float* data;
  int64_t n, c, h, w, sn, sc, sh, sw;
  explicit Walk(at::Tensor& t)
      : data(t.mutable_data_ptr<float>()),
        n(t.size(0)),
        c(t.size(1)),
        h(t.size(2)),
        w(t.size(3)),
        sn(t.stride(0)),
        sc(t.stride(1)),
        sh(t.stride(2)),
        sw(t.stride(3)) {}
};

void mix(at::Tensor& input, int64_t real, float lambda) {
  const int64_t bytes = input.numel() / input.size(0);
  auto* data = input.mutable_data_ptr<float>();
  // Mixes in place, from the first row on. A copy of each original row is kept for the next row.
  std::vector<float> before(data + (real - 1) * bytes, data + real * bytes), own(bytes);
  for (int64_t i = 0; i < real; ++i) {
    float* row = data + i * bytes;
    std::copy_n(row, bytes, own.begin());
    for (int64_t k = 0; k < bytes; ++k) row[k] = lambda * row[k] + (1.0f - lambda) * before[k];
    before.swap(own);
  }
}

void paste(at::Tensor& input, int64_t real, const Box& box) {
  const Walk walk(input);
  const int64_t values = walk.c * (box.bottom - box.top) * (box.right - box.left);
  std::vector<float> before(values), own(values);
  const auto each = [&](int64_t i, auto&& fn) {
    int64_t k = 0;
    for (int64_t c = 0; c < walk.c; ++c) {
      for (int64_t y = box.top; y < box.bottom; ++y) {
        for (int64_t x = box.left; x < box.right; ++x) fn(walk.data[i * walk.sn + c * walk.sc + y * walk.sh + x * walk.sw], k++);
      }
    }
  };
  each(real - 1, [&](float& value, int64_t k) { before[k] = value; });
  for (int64_t i = 0; i < real; ++i) {
    each(i, [&](float& value, int64_t k) {
      own[k] = value;
      value = before[k];
    });
    before.swap(own);
  }
}

/// The random numbers of a batch.
struct Mixing {
  bool cut = false;
  Box box{};          // if `cut`
  double lambda = 1;  // weight of the own label and, unless `cut`, of the own pixels
};

Mixing draw_mixing(const MixOptions& options, const Batch& batch) {
  const at::Tensor& input = batch.input();
  Philox rng(derive_seed(options.seed, "mixup", static_cast<uint64_t>(batch.epoch), static_cast<uint64_t>(batch.index)));
  const bool both = options.mixup_alpha > 0 && options.cutmix_alpha > 0;
  Mixing out;
  out.cut = both ? rng.below(2) == 1 : options.cutmix_alpha > 0;
  out.lambda = draw_beta(out.cut ? options.cutmix_alpha : options.mixup_alpha, rng);
  if (batch.size > 0 && out.cut) {
    out.box = draw_box(input.size(2), input.size(3), out.lambda, rng);
    const auto& [top, bottom, left, right] = out.box;
    out.lambda = 1.0 - static_cast<double>((bottom - top) * (right - left)) / static_cast<double>(input.size(2) * input.size(3));
  }
  return out;
}

/// Mixes on the batch's device, in place.
Batch mix_there(Batch batch, const MixOptions& options) {
  const auto [cut, box, lambda] = draw_mixing(options, batch);
  const auto before = [&](const at::Tensor& rows) { return at::roll(rows, 1, 0); };
  if (batch.size > 0) {
    const auto real = batch.input().narrow(0, 0, batch.size);
    if (!cut) {
      const auto own = static_cast<float>(lambda);
      const auto others = before(real).mul_(static_cast<double>(1.0f - own));
      real.mul_(static_cast<double>(own)).add_(others);
    } else if (box.bottom > box.top && box.right > box.left) {
      const auto there = real.slice(2, box.top, box.bottom).slice(3, box.left, box.right);
      there.copy_(before(there));
    }
  }
  const at::Tensor& own = batch.target();
  const auto padding = own.slice(0, batch.size);
  const auto others = batch.size > 0 ? at::cat({before(own.narrow(0, 0, batch.size)), padding}) : padding;
  const auto classes = at::arange(options.num_classes, own.options()).unsqueeze(0);
  const auto part = [&](const at::Tensor& labels, double weight) {
    return labels.unsqueeze(1).eq(classes).to(at::kFloat).mul_(static_cast<double>(static_cast<float>(weight)));
  };
  batch.set("target", part(own, lambda).add_(part(others, 1.0 - lambda)));
  return batch;
}

}  // namespace

double draw_beta(double alpha, Philox& rng) {
  if (alpha > 1) {
    const double a = draw_gamma(alpha, rng), b = draw_gamma(alpha, rng);
    return a / (a + b);
  }
  for (;;) {
    // In logarithms, because small alphas underflow.
    const double u = std::log(static_cast<double>(rng.uniform()) + 0x1.0p-25) / alpha,
                 v = std::log(static_cast<double>(rng.uniform()) + 0x1.0p-25) / alpha;
    const double high = std::max(u, v);
    const double log_sum = high + std::log(std::exp(u - high) + std::exp(v - high));
    if (log_sum <= 0) return std::exp(u - log_sum);
  }
}

BatchHook mix_batches(const MixOptions& options) {
  check(options.mixup_alpha >= 0 && options.cutmix_alpha >= 0 && std::isfinite(options.mixup_alpha) && std::isfinite(options.cutmix_alpha),
        ErrorKind::Usage, "mixup", "strengths are ", options.mixup_alpha, " and ", options.cutmix_alpha, "; neither may be negative");
  check(options.num_classes > 0, ErrorKind::Usage, "mixup", "the data set has no classes to mix");
  return [options](Batch batch) {
    at::Tensor input = batch.input();
    const bool later = !batch.pending.empty();  // pending transforms will change the input
    check(input.dim() == 4 && (later || input.scalar_type() == at::kFloat) && batch.target().dim() == 1 &&
              batch.target().scalar_type() == at::kLong && input.is_non_overlapping_and_dense(),
          ErrorKind::Usage, "mixup", "needs an \"input\" of floats [N, C, H, W] and a \"target\" of labels [N]");
    if (later) {
      check_labels(batch.target(), options.num_classes);
      batch.pending.emplace_back([options](Batch there) { return mix_there(std::move(there), options); });
      return batch;
    }
    const auto [cut, box, lambda] = draw_mixing(options, batch);
    if (batch.size > 0 && cut)
      paste(input, batch.size, box);
    else if (batch.size > 0)
      mix(input, batch.size, static_cast<float>(lambda));
    batch.set("target", soft_targets(batch.target(), batch.size, options.num_classes, lambda));
    return batch;
  };
}

}  // namespace npu_train
