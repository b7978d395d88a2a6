#include "engine/logged_items.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "npu_train/data/image_codec.hpp"

namespace npu_train::detail {
namespace {

std::vector<double> bucket_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> out;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) out.push_back(-*limit);
  out.push_back(0);
  out.insert(out.end(), positive.begin(), positive.end());
  return out;
}

}  // namespace

LoggedImage logged_image(const at::Tensor& image) {
  auto pixels = image.detach().to(at::kCPU);
  if (pixels.dim() == 2) pixels = pixels.unsqueeze(0);
  if (pixels.is_floating_point()) pixels = pixels.to(at::kFloat).nan_to_num(0).clamp(0, 1).mul(255).round().to(at::kByte);
  pixels = pixels.contiguous();
  LoggedImage out{.height = pixels.size(1), .width = pixels.size(2), .channels = pixels.size(0)};
  const auto file = encode_png(Image::view(pixels.const_data_ptr<uint8_t>(), out.height, out.width, out.channels));
  out.png.assign(file.begin(), file.end());
  return out;
}

LoggedHistogram logged_histogram(const at::Tensor& values) {
  static const auto limits = bucket_limits();
  const auto host = values.detach().to(at::kCPU).to(at::kDouble).contiguous();  // an NPU has no fp64
  const auto* const data = host.const_data_ptr<double>();
  std::vector<double> counts(limits.size());
  LoggedHistogram out{.min = std::numeric_limits<double>::max(), .max = std::numeric_limits<double>::lowest()};
  for (int64_t i = 0; i < host.numel(); ++i) {
    const double value = data[i];
    if (!std::isfinite(value)) {
      ++out.not_finite;
      continue;
    }
    out.min = std::min(out.min, value);
    out.max = std::max(out.max, value);
    out.count += 1;
    out.sum += value;
    out.sum_of_squares += value * value;
    const auto place = std::upper_bound(limits.begin(), limits.end(), value) - limits.begin();
    counts[std::min(static_cast<size_t>(place), counts.size() - 1)] += 1;
  }
  if (out.count == 0) return {.not_finite = out.not_finite};
  const auto some = [](double count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), some) - counts.begin();
  const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), some);
  const auto begin = std::max<std::ptrdiff_t>(first - 1, 0);  // an empty bucket before the first one provides its lower limit
  out.limits.assign(limits.begin() + begin, limits.begin() + last);
  out.counts.assign(counts.begin() + begin, counts.begin() + last);
  return out;
}

}  // namespace npu_train::detail
