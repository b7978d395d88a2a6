#include <cmath>

#include "npu_train/data/image_transforms.hpp"
#include "npu_train/data/transform.hpp"

namespace npu_train {
namespace {

const char* const kSizeDoc = "pixels; 0: the data set's image_size";

int64_t size_or_default(int64_t size, const TransformContext& context) {
  const int64_t side = size > 0 ? size : context.image_size;
  check(side > 0, ErrorKind::Usage, "transforms", "size is 0 and the data set has no image_size; hint: set one of them");
  return side;
}

struct SizeOptions {
  int64_t size = 0;
  static const ConfigTable<SizeOptions>& config_table() {
    static const auto table =
        ConfigTable<SizeOptions>("transform center_crop").field("size", &SizeOptions::size, kSizeDoc, between(0, 8192));
    return table;
  }
};

const Bounds kInterpolations = one_of({"bilinear", "bicubic"});
const char* const kInterpolationDoc = "filter, antialiased: bilinear, or bicubic as timm's models have it";

Resampling resampling(const std::string& interpolation, const TransformContext& context) {
  return {interpolation == "bicubic" ? Interpolation::Bicubic : Interpolation::Bilinear, context.exact};
}

struct ResizeOptions {
  int64_t size = 0;
  bool exact = false;
  double crop_ratio = 1;
  std::string interpolation = "bilinear";
  static const ConfigTable<ResizeOptions>& config_table() {
    static const auto table =
        ConfigTable<ResizeOptions>("transform resize")
            .field("size", &ResizeOptions::size, "shorter side in pixels; 0: the data set's image_size / crop_ratio", between(0, 8192))
            .field("exact", &ResizeOptions::exact, "resizes both sides to size; changes the aspect ratio")
            .field("crop_ratio", &ResizeOptions::crop_ratio, "with size 0: the fraction of the side that a following crop keeps",
                   between(0.1, 1))
            .field("interpolation", &ResizeOptions::interpolation, kInterpolationDoc, kInterpolations);
    return table;
  }
};

struct RandomCropOptions {
  int64_t size = 0;
  int64_t padding = 0;
  static const ConfigTable<RandomCropOptions>& config_table() {
    static const auto table = ConfigTable<RandomCropOptions>("transform random_crop")
                                  .field("size", &RandomCropOptions::size, kSizeDoc, between(0, 8192))
                                  .field("padding", &RandomCropOptions::padding, "width of the zero padding, pixels", between(0, 8192));
    return table;
  }
};

struct RandomResizedCropOptions {
  int64_t size = 0;
  std::vector<double> scale = {0.08, 1};
  std::vector<double> ratio = {0.75, 4.0 / 3};
  std::string interpolation = "bilinear";
  static const ConfigTable<RandomResizedCropOptions>& config_table() {
    static const auto table =
        ConfigTable<RandomResizedCropOptions>("transform random_resized_crop")
            .field("size", &RandomResizedCropOptions::size, kSizeDoc, between(0, 8192))
            .field("scale", &RandomResizedCropOptions::scale, "minimum and maximum fraction of the area", between(1e-6, 1))
            .field("ratio", &RandomResizedCropOptions::ratio, "minimum and maximum width / height", between(1e-3, 1e3))
            .field("interpolation", &RandomResizedCropOptions::interpolation, kInterpolationDoc, kInterpolations);
    return table;
  }
};

struct FlipOptions {
  double p = 0.5;
  static const ConfigTable<FlipOptions>& config_table() {
    static const auto table =
        ConfigTable<FlipOptions>("transform horizontal_flip").field("p", &FlipOptions::p, "probability", between(0, 1));
    return table;
  }
};

struct JitterOptions {
  double brightness = 0.2, contrast = 0.2, saturation = 0.2, hue = 0.1;
  static const ConfigTable<JitterOptions>& config_table() {
    static const auto table = ConfigTable<JitterOptions>("transform color_jitter")
                                  .field("brightness", &JitterOptions::brightness, "factor within 1 +- this", at_least(0))
                                  .field("contrast", &JitterOptions::contrast, "factor within 1 +- this", at_least(0))
                                  .field("saturation", &JitterOptions::saturation, "factor within 1 +- this", at_least(0))
                                  .field("hue", &JitterOptions::hue, "hue shift within +- this fraction of the circle", between(0, 0.5));
    return table;
  }
};

struct RotationOptions {
  double degrees = 15;
  static const ConfigTable<RotationOptions>& config_table() {
    static const auto table = ConfigTable<RotationOptions>("transform random_rotation")
                                  .field("degrees", &RotationOptions::degrees, "largest angle to either side", between(0, 360));
    return table;
  }
};

struct BlurOptions {
  int64_t kernel = 3;
  std::vector<double> sigma = {0.1, 2.0};
  static const ConfigTable<BlurOptions>& config_table() {
    static const auto table = ConfigTable<BlurOptions>("transform gaussian_blur")
                                  .field("kernel", &BlurOptions::kernel, "width in pixels, odd", between(1, 255))
                                  .field("sigma", &BlurOptions::sigma, "minimum and maximum standard deviation, pixels", more_than(0));
    return table;
  }
};

struct NormalizeOptions {
  std::vector<double> mean, std;
  static const ConfigTable<NormalizeOptions>& config_table() {
    static const auto table = ConfigTable<NormalizeOptions>("transform normalize")
                                  .field("mean", &NormalizeOptions::mean, "per channel, of values in [0, 1]; empty: the data set's")
                                  .field("std", &NormalizeOptions::std, "per channel; empty: the data set's", more_than(0));
    return table;
  }
};

struct RandAugmentOptions {
  int64_t num_ops = 2;
  int64_t magnitude = 9;
  static const ConfigTable<RandAugmentOptions>& config_table() {
    static const auto table = ConfigTable<RandAugmentOptions>("transform rand_augment")
                                  .field("num_ops", &RandAugmentOptions::num_ops, "operations per image", between(0, 14))
                                  .field("magnitude", &RandAugmentOptions::magnitude, "strength of each operation", between(0, 30));
    return table;
  }
};

struct ErasingOptions {
  double p = 0.5;
  std::vector<double> scale = {0.02, 0.33};
  std::vector<double> ratio = {0.3, 3.3};
  static const ConfigTable<ErasingOptions>& config_table() {
    static const auto table = ConfigTable<ErasingOptions>("transform random_erasing")
                                  .field("p", &ErasingOptions::p, "probability", between(0, 1))
                                  .field("scale", &ErasingOptions::scale, "minimum and maximum fraction of the area", between(1e-6, 1))
                                  .field("ratio", &ErasingOptions::ratio, "minimum and maximum width / height", between(1e-3, 1e3));
    return table;
  }
};

void check_range(const std::vector<double>& range, const char* name) {
  check(range.size() == 2, ErrorKind::Usage, "transforms", name, " has ", range.size(),
        " numbers; allowed: two, the minimum and the maximum");
}

template <class T, class... Args>
TransformPart step(Args&&... args) {
  return {std::make_shared<T>(std::forward<Args>(args)...), {}};
}

void add_augmentations(TransformRegistry& registry) {
  registry.add<JitterOptions>(
      "color_jitter", "random brightness, contrast, saturation and hue",
      [](const JitterOptions& o, const TransformContext&) { return step<ColorJitter>(o.brightness, o.contrast, o.saturation, o.hue); });
  registry.add<RotationOptions>("random_rotation", "random rotation, nearest pixel, 0 outside",
                                [](const RotationOptions& o, const TransformContext&) { return step<RandomRotation>(o.degrees); });
  registry.add<BlurOptions>("gaussian_blur", "Gaussian blur of random width", [](const BlurOptions& o, const TransformContext&) {
    check_range(o.sigma, "sigma");
    return step<GaussianBlur>(o.kernel, o.sigma[0], o.sigma[1]);
  });
  registry.add<RandAugmentOptions>(
      "rand_augment", "random operations of equal strength (Cubuk et al. 2019)",
      [](const RandAugmentOptions& o, const TransformContext&) { return step<RandAugment>(o.num_ops, o.magnitude); });
  registry.add<ErasingOptions>("random_erasing", "fills a random box with the mean colour (Zhong et al. 2017)",
                               [](const ErasingOptions& o, const TransformContext& context) {
                                 check_range(o.scale, "scale");
                                 check_range(o.ratio, "ratio");
                                 return step<RandomErasing>(o.p, o.scale[0], o.scale[1], o.ratio[0], o.ratio[1], context.mean);
                               });
}

}  // namespace

void add_builtin_transforms(TransformRegistry& registry) {
  registry.add<ResizeOptions>("resize", "antialiased resize", [](const ResizeOptions& o, const TransformContext& context) {
    const int64_t size =
        o.size > 0 ? o.size : static_cast<int64_t>(std::floor(static_cast<double>(size_or_default(0, context)) / o.crop_ratio));  // as timm
    const auto how = resampling(o.interpolation, context);
    return o.exact ? step<Resize>(size, size, how) : step<Resize>(size, how);
  });
  registry.add<SizeOptions>("center_crop", "the centre of the image", [](const SizeOptions& o, const TransformContext& context) {
    return step<CenterCrop>(size_or_default(o.size, context));
  });
  registry.add<RandomCropOptions>("random_crop", "a random window, after padding with 0",
                                  [](const RandomCropOptions& o, const TransformContext& context) {
                                    return step<RandomCrop>(size_or_default(o.size, context), o.padding);
                                  });
  registry.add<RandomResizedCropOptions>("random_resized_crop", "a random box with a random shape, resized",
                                         [](const RandomResizedCropOptions& o, const TransformContext& context) {
                                           check_range(o.scale, "scale");
                                           check_range(o.ratio, "ratio");
                                           return step<RandomResizedCrop>(size_or_default(o.size, context), o.scale[0], o.scale[1],
                                                                          o.ratio[0], o.ratio[1], resampling(o.interpolation, context));
                                         });
  registry.add<FlipOptions>("horizontal_flip", "mirrors left to right",
                            [](const FlipOptions& o, const TransformContext&) { return step<HorizontalFlip>(o.p); });
  registry.add<NormalizeOptions>("normalize", "subtracts the mean, divides by the standard deviation; must be last",
                                 [](const NormalizeOptions& o, const TransformContext& context) {
                                   const bool own = !o.mean.empty() || !o.std.empty();
                                   return TransformPart{nullptr, Normalization{own ? o.mean : context.mean, own ? o.std : context.std}};
                                 });
  add_augmentations(registry);
}

TransformRegistry builtin_transforms() {
  TransformRegistry registry("transform", "a program adds its own with parts.transforms.add");
  add_builtin_transforms(registry);
  return registry;
}

}  // namespace npu_train
