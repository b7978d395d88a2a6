#include "npu_train/data/device_augment.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

bool known(ImageSize size) { return size.first > 0 && size.second > 0; }

/// Returns the number of steps up to the last one that sizes images and has no device form.
size_t steps_on_host(const Pipeline& pipeline, int64_t channels, ImageSize size) {
  size_t count = 0;
  for (size_t i = 0; i < pipeline.steps().size(); ++i) {
    const auto& step = *pipeline.steps()[i];
    const ImageSize out = step.output_size(size);
    const bool sizes = out != size || known(step.output_size({-1, -1}));
    if (!known(size) || (sizes && step.device_form(channels, size) == nullptr)) count = i + 1;
    size = out;
  }
  check(known(size), ErrorKind::Usage, "data.augment_on",
        "device: the data set does not give the size of its images, and no transform gives them a fixed one; hint: add one (center_crop, "
        "random_resized_crop, or resize with exact: true)");
  return count;
}

}  // namespace

DeviceAugment::DeviceAugment(std::vector<std::shared_ptr<const DeviceForm>> steps, ImageSize in, const std::array<float, 4>& scale,
                             const std::array<float, 4>& shift)
    : steps_(std::move(steps)), in_(in), scale_(scale), shift_(shift) {
  for (const auto& step : steps_) {
    floats_ += step->floats();
    integers_ += step->integers();
  }
}

void DeviceAugment::draw(Philox& rng, float* floats, int32_t* integers) const {
  for (const auto& step : steps_) {
    step->draw(rng, floats, integers);
    floats += step->floats();
    integers += step->integers();
  }
}

Batch DeviceAugment::finish(Batch batch, bool channels_last) const {
  const at::Tensor& bytes = batch.input();
  check(bytes.scalar_type() == at::kByte && bytes.dim() == 4 && bytes.size(1) <= 4 && ImageSize(bytes.size(2), bytes.size(3)) == in_,
        ErrorKind::Usage, "DeviceAugment", "needs an \"input\" of uint8 [N, C, ", in_.first, ", ", in_.second, "]; it is ",
        bytes.scalar_type(), " ", bytes.sizes());
  at::Tensor pixels = bytes.to(at::kFloat).contiguous();
  const at::Tensor floats = floats_ > 0 ? batch.at(kFloats) : at::Tensor(), integers = integers_ > 0 ? batch.at(kIntegers) : at::Tensor();
  int64_t first_float = 0, first_integer = 0;
  for (const auto& step : steps_) {
    pixels = step->apply(std::move(pixels), step->floats() > 0 ? floats.narrow(1, first_float, step->floats()) : at::Tensor(),
                         step->integers() > 0 ? integers.narrow(1, first_integer, step->integers()) : at::Tensor());
    first_float += step->floats();
    first_integer += step->integers();
  }
  // Rounds twice, as on the host; a fused multiply-add would change bits.
  for (int64_t c = 0; c < pixels.size(1); ++c) {
    const at::Tensor plane = pixels.select(1, c);
    plane.mul_(static_cast<double>(scale_[static_cast<size_t>(c)]));
    plane.add_(static_cast<double>(shift_[static_cast<size_t>(c)]));
  }
  batch.erase(kFloats);
  batch.erase(kIntegers);
  batch.set("input", channels_last ? pixels.contiguous(at::MemoryFormat::ChannelsLast) : pixels);
  return batch;
}

SplitPipeline split_for_device(const Pipeline& pipeline, int64_t channels, ImageSize in) {
  const auto& all = pipeline.steps();
  SplitPipeline out;
  out.host_steps = steps_on_host(pipeline, channels, in);
  const auto cut = all.begin() + static_cast<std::ptrdiff_t>(out.host_steps);
  out.host = Pipeline(std::vector<std::shared_ptr<const Transform>>(all.begin(), cut));
  ImageSize size = out.host.output_size(in);
  const ImageSize begin = size;
  std::vector<std::shared_ptr<const DeviceForm>> forms;
  for (size_t i = out.host_steps; i < all.size(); ++i) {
    auto form = all[i]->device_form(channels, size);
    check(form != nullptr, ErrorKind::Usage, "data.augment_on", "device: '", pipeline.step_name(i),
          "' is not implemented for batches on a device; allowed: center_crop, random_crop, horizontal_flip, color_jitter, "
          "random_rotation, gaussian_blur, random_erasing, normalize; hint: data.augment_on=host, or remove '",
          pipeline.step_name(i), "', or move it before the last resizing step, which runs on the host");
    forms.push_back(std::move(form));
    size = all[i]->output_size(size);
  }
  out.device = std::make_shared<DeviceAugment>(std::move(forms), begin, pipeline.scale(), pipeline.shift());
  return out;
}

std::string where_it_runs(const Pipeline& pipeline, const SplitPipeline& split) {
  std::vector<std::string> host, device;
  for (size_t i = 0; i < pipeline.steps().size(); ++i) (i < split.host_steps ? host : device).push_back(pipeline.step_name(i));
  device.emplace_back("normalize");
  return (host.empty() ? "" : "on the host: " + join(host) + "; ") + "on the device: " + join(device);
}

}  // namespace npu_train
