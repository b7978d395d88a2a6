#include "npu_train/data/transform.hpp"

#include <ATen/ops/empty.h>

#include "npu_train/core/error.hpp"
#include "npu_train/data/image_codec.hpp"

namespace npu_train {

Image Transform::apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const {
  return apply(decode_image(file, where), rng);
}

Pipeline::Pipeline(std::vector<std::shared_ptr<const Transform>> steps, Normalization normalization)
    : steps_(std::move(steps)), normalization_(std::move(normalization)) {
  const auto& [mean, std] = normalization_;
  check(mean.size() == std.size() && mean.size() <= 4, ErrorKind::Usage, "normalize", mean.size(), " means and ", std.size(),
        " standard deviations; there must be one of each per channel");
  for (size_t c = 0; c < 4; ++c) {
    // One number applies to all channels.
    const double m = mean.empty() ? 0.0 : mean[mean.size() == 1 ? 0 : std::min(c, mean.size() - 1)];
    const double s = std.empty() ? 1.0 : std[std.size() == 1 ? 0 : std::min(c, std.size() - 1)];
    check(s > 0, ErrorKind::Usage, "normalize", "the standard deviation of channel ", c, " is ", s, "; it must be positive");
    scale_[c] = static_cast<float>(1.0 / (255.0 * s));
    shift_[c] = static_cast<float>(-m / s);
  }
}

Pipeline Pipeline::from_config(const std::vector<PartConfig>& parts, const std::string& path, const TransformContext& context,
                               const TransformRegistry& registry) {
  std::vector<std::shared_ptr<const Transform>> steps;
  std::vector<std::string> names;
  std::optional<Normalization> normalization;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = path + "[" + std::to_string(i) + "]";
    auto part = registry.make(parts[i], here, context);
    check(!normalization.has_value(), ErrorKind::Usage, here.c_str(), "'", parts[i].name, "' follows normalize; normalize must be last");
    if (part.step != nullptr) {
      steps.push_back(std::move(part.step));
      names.push_back(parts[i].name);
    }
    if (part.normalization.has_value()) normalization = std::move(part.normalization);
  }
  Pipeline out(std::move(steps), normalization.value_or(Normalization{}));
  out.names_ = std::move(names);
  return out;
}

std::string Pipeline::step_name(size_t step) const { return step < names_.size() ? names_[step] : "transform " + std::to_string(step + 1); }

ImageSize Pipeline::output_size(ImageSize in) const {
  for (const auto& step : steps_) in = step->output_size(in);
  return in;
}

Image Pipeline::run_to_bytes(const LabelledImage& given, const std::string& where, Philox& rng) const {
  Image image = given.pixels;
  auto step = steps_.begin();
  if (image.empty()) {
    image = step == steps_.end() ? decode_image(given.encoded, where) : (*step)->apply_encoded(given.encoded, where, rng);
    if (step != steps_.end()) ++step;
  }
  for (; step != steps_.end(); ++step) image = (*step)->apply(std::move(image), rng);
  return image;
}

void Pipeline::run(const LabelledImage& image, const std::string& where, Philox& rng, const FloatTarget& target) const {
  write_floats(run_to_bytes(image, where, rng), target, scale_.data(), shift_.data());
}

at::Tensor Pipeline::run_to_tensor(const LabelledImage& given, const std::string& where, Philox& rng) const {
  const Image image = run_to_bytes(given, where, rng);
  at::Tensor out = at::empty({image.channels(), image.height(), image.width()}, at::kFloat);
  write_floats(image, {out.data_ptr<float>(), image.height(), image.width(), image.channels(), false}, scale_.data(), shift_.data());
  return out;
}

}  // namespace npu_train
