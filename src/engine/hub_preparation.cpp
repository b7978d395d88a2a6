#include "engine/hub_preparation.hpp"

#include <cmath>
#include <utility>

#include "engine/hub_config.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/data/data_options.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {
namespace {

constexpr double kImagenetShare = 0.875;
constexpr const char* kPreparation = "preparation of images";

// Reads a JSON object of one file, with defaults for missing keys.
class Reader {
 public:
  Reader(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  const Json* find(const char* key) const {
    const auto* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool flag(const char* key, bool otherwise) const { return find(key) != nullptr ? find(key)->boolean(where(key)) : otherwise; }
  double number(const char* key, double otherwise) const { return find(key) != nullptr ? find(key)->number(where(key)) : otherwise; }
  std::string text(const char* key, const std::string& otherwise) const {
    return find(key) != nullptr ? find(key)->text(where(key)) : otherwise;
  }
  ConfigNode channels(const char* key, const std::vector<double>& otherwise) const {
    std::vector<ConfigNode> out;
    if (const auto* values = find(key))
      for (const auto& value : values->items(where(key))) out.emplace_back(value.number(where(key)));
    else
      for (const double value : otherwise) out.emplace_back(value);
    check(out.size() == 3, ErrorKind::Checkpoint, kPreparation, where(key), " has ", out.size(),
          " numbers; allowed: 3, one for each of red, green, blue");
    return ConfigNode::list(std::move(out));
  }
  std::string where(const char* key) const { return file_ + ": " + key; }
  const std::string& file() const { return file_; }

 private:
  const Json& json_;
  std::string file_;
};

std::string known_filter(const std::string& filter, const std::string& file) {
  if (filter == "bilinear" || filter == "bicubic") return filter;
  log_warning(file, ": images are resized by '", filter, "', which the transforms do not have; bicubic is used");
  return "bicubic";
}

PartConfig normalize(ConfigNode mean, ConfigNode std) { return part("normalize", {{"mean", std::move(mean)}, {"std", std::move(std)}}); }

// Returns the steps of timm's transforms_imagenet_eval(), with the defaults of its resolve_data_config().
std::vector<PartConfig> timm_steps(const Reader& file, int64_t side) {
  const auto mode = file.text("crop_mode", "center");
  const double share = file.number("crop_pct", kImagenetShare);
  check(mode == "center" || mode == "squash", ErrorKind::Checkpoint, kPreparation, file.file(), ": crop_mode is '", mode,
        "'; allowed: center, squash");
  check(share > 0.1 && share <= 1, ErrorKind::Checkpoint, kPreparation, file.file(), ": crop_pct is ", share,
        "; allowed: above 0.1, at most 1");
  const auto resized = static_cast<int64_t>(std::floor(static_cast<double>(side) / share));
  return {part("resize", {{"size", resized},
                          {"exact", mode == "squash"},
                          {"interpolation", known_filter(file.text("interpolation", "bicubic"), file.file())}}),
          part("center_crop", {{"size", side}}),
          normalize(file.channels("mean", ImagePreparation::imagenet_mean()), file.channels("std", ImagePreparation::imagenet_std()))};
}

struct Size {
  int64_t pixels = 0;
  bool exact = false;  // true: `pixels` is the length of both sides; false: of the shorter one
};

// Reads `size` or `crop_size`: a number, {height, width} or {shortest_edge}.
Size size_of(const Reader& file, const char* key, bool number_is_exact) {
  const auto& value = *file.find(key);
  if (!value.is_object()) return {value.integer(file.where(key)), number_is_exact};
  if (const auto* shortest = value.find("shortest_edge")) return {shortest->integer(file.where(key)), false};
  const auto height = value.at("height", file.where(key)).integer(file.where(key));
  const auto width = value.at("width", file.where(key)).integer(file.where(key));
  check(height == width, ErrorKind::Checkpoint, kPreparation, file.where(key), ": the images are ", height, " x ", width,
        "; allowed: squares");
  return {height, true};
}

std::string hub_filter(const Reader& file, bool is_vit) {
  const auto number = static_cast<int>(file.number("resample", is_vit ? 2 : 3));  // a number of PIL.Image.Resampling
  const char* const names[] = {"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};
  check(number >= 0 && number < 6, ErrorKind::Checkpoint, kPreparation, file.where("resample"), " is ", number, "; allowed: 0 to 5");
  return known_filter(names[number], file.file());
}

// Returns the steps of transformers' image processors, which must result in a square image.
std::vector<PartConfig> hub_steps(const Reader& file, int64_t side) {
  const auto type = file.text("image_processor_type", file.text("feature_extractor_type", ""));
  const bool is_vit = type.starts_with("ViT") || type.starts_with("DeiT"), is_convnext = type.starts_with("ConvNext");
  Size resized{side, true}, cropped{0, true};
  if (file.find("size") != nullptr) resized = size_of(file, "size", is_vit);
  if (file.flag("do_center_crop", file.find("crop_size") != nullptr) && file.find("crop_size") != nullptr)
    cropped = size_of(file, "crop_size", true);
  if (is_convnext) {
    cropped = {resized.pixels, true};
    resized.exact = resized.pixels >= 384;
    if (!resized.exact)
      resized.pixels = static_cast<int64_t>(static_cast<double>(resized.pixels) / file.number("crop_pct", kImagenetShare));
  }
  const auto result = cropped.pixels > 0 ? cropped.pixels : resized.pixels;
  check(resized.pixels > 0 && result > 0 && resized.pixels <= 8192 && result <= resized.pixels && (cropped.pixels > 0 || resized.exact),
        ErrorKind::Checkpoint, kPreparation, file.file(), ": images are resized to ", resized.pixels, " and cropped to ", cropped.pixels,
        " pixels; allowed: a square of at most 8192 pixels, which is not larger than the resized image");
  const auto scaled = [&](int64_t pixels) { return (pixels * side + result / 2) / result; };
  std::vector<PartConfig> out;
  if (file.flag("do_resize", true))
    out.push_back(
        part("resize", {{"size", scaled(resized.pixels)}, {"exact", resized.exact}, {"interpolation", hub_filter(file, is_vit)}}));
  if (cropped.pixels > 0) out.push_back(part("center_crop", {{"size", side}}));
  check(file.flag("do_rescale", true) && std::abs(file.number("rescale_factor", 1.0 / 255) * 255 - 1) < 1e-3, ErrorKind::Checkpoint,
        kPreparation, file.file(), ": the values of pixels are not divided by 255; allowed: do_rescale true, rescale_factor 1/255");
  if (file.flag("do_normalize", true)) out.push_back(normalize(file.channels("image_mean", {}), file.channels("image_std", {})));
  return out;
}

}  // namespace

std::optional<HubPreparation> hub_preparation(const std::filesystem::path& weights, int64_t side) {
  if (const auto file = file_of_weights(weights, "preprocessor_config.json"); !file.empty()) {
    const auto json = load_json(file, kHubLimits);
    return HubPreparation{file.string(), hub_steps({json, file.string()}, side)};
  }
  const auto file = hub_config_of(weights);
  if (file.empty()) return std::nullopt;
  const auto json = load_json(file, kHubLimits);
  const auto* timm = json.find("pretrained_cfg");
  if (timm == nullptr || !timm->is_object()) return std::nullopt;
  return HubPreparation{file.string(), timm_steps({*timm, file.string() + ": pretrained_cfg"}, side)};
}

}  // namespace npu_train::detail
