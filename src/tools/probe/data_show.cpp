#include "npu_train/tools/probe/data_show.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/data/device_augment.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_stream.hpp"
#include "npu_train/data/sample_choice.hpp"
#include "npu_train/data/sampler.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

constexpr const char* kDataShow = "data show";
constexpr int64_t kMostImages = 2'000;
constexpr int64_t kTrainVersions = 4;
constexpr int64_t kSmallestSide = 128;  // in pixels; smaller images are enlarged on the page, but not beyond this

/// Converts an image [C, H, W] to bytes. Undoes the normalisation of floats and rounds the result, since mixup computes values between
/// bytes; bytes are only copied.
Image bytes_of(const at::Tensor& given, const Pipeline& pipeline) {
  if (given.scalar_type() == at::kByte) {
    const auto bytes = given.cpu().contiguous();
    return Image::view(bytes.const_data_ptr<uint8_t>(), bytes.size(1), bytes.size(2), bytes.size(0)).own();
  }
  const auto values = given.to(at::kCPU, at::kFloat).contiguous();
  Image out = Image::allocate(values.size(1), values.size(2), values.size(0));
  const auto* value = values.const_data_ptr<float>();
  for (int64_t c = 0; c < out.channels(); ++c) {
    const float scale = pipeline.scale()[static_cast<size_t>(c)], shift = pipeline.shift()[static_cast<size_t>(c)];
    for (int64_t i = 0; i < out.pixels(); ++i) {
      const float level = std::nearbyint((*value++ - shift) / scale);
      out.mutable_plane(c)[i] = level > 0 ? static_cast<uint8_t>(std::min(level, 255.0f)) : uint8_t{0};  // 0 for NaN, too
    }
  }
  return out;
}

/// Returns the image, scaled down if it has more than `pixels` pixels.
Image at_most(const Image& image, int64_t pixels) {
  if (image.pixels() <= pixels) return image;
  const double scale = std::sqrt(static_cast<double>(pixels) / static_cast<double>(image.pixels()));
  const auto side = [&](int64_t whole, int64_t most) {
    return std::clamp<int64_t>(static_cast<int64_t>(scale * static_cast<double>(whole)), 1, most);
  };
  const int64_t height = side(image.height(), pixels);
  return resize(image, height, side(image.width(), pixels / height));
}

std::string name_of_class(const DatasetInfo& info, int64_t label) {
  if (label < 0) return "";
  return label < static_cast<int64_t>(info.class_names.size()) ? info.class_names[static_cast<size_t>(label)] : std::to_string(label);
}

/// Shows chosen samples, epoch by epoch.
class SampleShow {
 public:
  SampleShow(DataShow& out, const DatasetPair& pair, Loader loader, const Device& device, const DataShowOptions& options)
      : out_(out),
        info_(pair.info()),
        pipeline_(options.validation ? pair.val_pipeline : pair.train_pipeline),
        data_((options.validation ? pair.val : pair.train).get()),
        loader_(std::move(loader)),
        device_(device),
        pixels_(std::max<int64_t>(1, options.pixels / std::max<int64_t>(1, static_cast<int64_t>(out.samples.size()) * options.versions))) {
    if (data_ != nullptr) sampler_.emplace(detail::sampler_of(loader_.options(), data_->size(), loader_.options().seed));
  }

  void show_epoch(int64_t epoch, const std::function<void()>& shown) {
    std::map<int64_t, std::vector<ShownSample*>> batches;  // samples by the number of their micro-batch
    const auto batch_of = batches_of(epoch);
    for (auto& sample : out_.samples) {
      auto& version = sample.versions.emplace_back(ShownVersion{.epoch = epoch});
      const auto found = batch_of.find(sample.index);
      if (found == batch_of.end())
        version.problem = "not drawn in this epoch";
      else if (sampler_ && found->second >= sampler_->batches())
        version.problem = kDropped;
      else
        batches[found->second].push_back(&sample);
    }
    for (const auto& [batch, samples] : batches) {
      show_batch(epoch, batch, samples);
      for (size_t i = 0; i < samples.size(); ++i) shown();
    }
  }

 private:
  static constexpr const char* kDropped = "in the last batch, which data.drop_last omits";

  /// Returns, for each shown sample, the number of the first micro-batch of the epoch that contains it.
  std::map<int64_t, int64_t> batches_of(int64_t epoch) const {
    std::map<int64_t, int64_t> out;
    for (const auto& sample : out_.samples) out[sample.index] = sampler_ ? -1 : sample.index / loader_.options().batch_size;
    if (!sampler_) return out;
    const auto order = sampler_->order(epoch);
    for (size_t k = 0; k < order.size(); ++k)
      if (const auto found = out.find(order[k]); found != out.end() && found->second < 0)
        found->second = static_cast<int64_t>(k) / loader_.options().batch_size;
    std::erase_if(out, [](const auto& item) { return item.second < 0; });
    return out;
  }

  void show_batch(int64_t epoch, int64_t number, const std::vector<ShownSample*>& samples) {
    try {
      loader_.begin_epoch(epoch, number);
      const auto next = loader_.next();
      const auto batch = next ? to_device(*next, device_, /*non_blocking=*/false) : Batch();
      const bool dropped = data_ == nullptr && !next && loader_.options().last_batch == LastBatch::Drop;
      for (auto* sample : samples) {
        const auto found = std::find(batch.ids.begin(), batch.ids.end(), sample->index);
        if (found != batch.ids.end())
          show(sample->versions.back(), batch, found - batch.ids.begin());
        else if (dropped)
          sample->versions.back().problem = kDropped;
        else
          sample->versions.back() = {
              .epoch = epoch, .problem = "cannot be read, and is omitted (data.on_bad_sample: skip)", .unreadable = true};
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Data) throw;
      for (auto* sample : samples) sample->versions.back() = {.epoch = epoch, .problem = error.what(), .unreadable = true};
    }
  }

  void check_images(const at::Tensor& input) const {
    check(input.dim() == 4 && (input.size(1) == 1 || input.size(1) == 3), ErrorKind::Usage, kDataShow, "the samples of '", out_.name,
          "' have an input of ", input.sizes(), "; allowed: images [N, C, H, W] with 1 or 3 channels; hint: npu_tool data stats for texts");
    const bool images = data_ == nullptr || dynamic_cast<const ImageDataset*>(data_) != nullptr;
    const bool known = input.scalar_type() == at::kByte || images || !pipeline_.empty();
    check(known, ErrorKind::Usage, kDataShow, "the samples of '", out_.name, "' are tensors of ", input.scalar_type(),
          " without transforms, so it is not known which values are black and white; allowed: uint8, or an ImageDataset");
  }

  void show(ShownVersion& version, const Batch& batch, int64_t row) const {
    const auto& input = batch.input();
    check_images(input);
    const auto image = bytes_of(input.select(0, row), pipeline_), picture = at_most(image, pixels_);
    const auto file = encode_png(picture);
    version.png.assign(file.begin(), file.end());
    version.height = image.height();
    version.width = image.width();
    version.png_height = picture.height();
    version.png_width = picture.width();
    if (batch.has("target") && batch.target().dim() == 2 && batch.target().is_floating_point())
      version.labels = labels_of_row(batch.target().select(0, row).to(at::kCPU, at::kFloat).contiguous());
  }

  std::vector<std::pair<std::string, double>> labels_of_row(const at::Tensor& row) const {
    std::vector<std::pair<std::string, double>> out;
    const auto* value = row.const_data_ptr<float>();
    for (int64_t c = 0; c < row.numel(); ++c)
      if (out_.numbers || value[c] > 0) out.emplace_back(name_of_class(info_, c), static_cast<double>(value[c]));
    if (!out_.numbers) std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return out;
  }

  DataShow& out_;
  DatasetInfo info_;
  const Pipeline& pipeline_;
  const Dataset* data_;  // nullptr for a stream of images
  Loader loader_;
  std::optional<DistributedSampler> sampler_;  // nullopt for a stream, in which sample i is number i of the epoch
  Device device_;
  int64_t pixels_;  // largest number of pixels of a shown image
};

std::string names_of_steps(const Pipeline& pipeline) {
  std::vector<std::string> out;
  for (size_t i = 0; i < pipeline.steps().size(); ++i) out.push_back(pipeline.step_name(i));
  if (!pipeline.normalization().mean.empty()) out.emplace_back("normalize (undone here)");
  return out.empty() ? "none" : join(out);
}

std::string mixing_of(const DataOptions& options) {
  std::vector<std::string> out;
  if (options.mixup_alpha > 0) out.push_back("mixup " + short_number(options.mixup_alpha));
  if (options.cutmix_alpha > 0) out.push_back("cutmix " + short_number(options.cutmix_alpha));
  return out.empty() ? "none" : join(out);
}

/// Returns the label of an image, or -1 if it cannot be read.
int64_t label_of(const PendingImage& image) {
  try {
    return image.read().label;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Data) throw;
    return -1;
  }
}

/// Returns the label of sample `index`, which some data sets know only when they read the image; -1 if there is none.
int64_t label_of(const Dataset& data, int64_t index) {
  const auto known = data.label(index);
  const auto* images = dynamic_cast<const ImageDataset*>(&data);
  if (known >= 0 || images == nullptr || images->targets() > 0) return known;
  return label_of({data.where(index), [&] { return images->image(index); }});
}

/// Draws samples by the seed, from `subset` unless it is empty, and describes them.
std::vector<ShownSample> chosen_samples(const Dataset& data, const std::vector<int64_t>& subset, const DatasetInfo& info, uint64_t seed,
                                        int64_t count) {
  DistributedSampler sampler({.size = data.size(), .shuffle = true, .seed = derive_seed(seed, kDataShow), .subset = subset});
  auto order = sampler.order(0);
  order.resize(static_cast<size_t>(std::min(count, sampler.samples())));
  std::sort(order.begin(), order.end());
  std::vector<ShownSample> out;
  for (const auto index : order)
    out.push_back({.index = index, .file = data.where(index), .label = name_of_class(info, label_of(data, index))});
  return out;
}

/// Describes the first samples of a stream in its first epoch.
std::vector<ShownSample> first_samples(ImageStream& stream, const DatasetInfo& info, uint64_t seed, int64_t count) {
  stream.set_seed(seed);
  stream.begin_epoch(0);
  std::vector<ShownSample> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto image = stream.next_image();
    if (!image) break;
    out.push_back({.index = i, .file = image->where, .label = name_of_class(info, label_of(*image))});
  }
  return out;
}

/// Prevents the loader from reading more than is necessary: the shown samples or, with mixing or drop_last, their complete micro-batches.
void read_only_shown(DataOptions& options, bool mixes, bool stream) {
  const bool single = !mixes && !options.drop_last;  // the other samples of a batch have no effect on an image
  if (single) options.batch_size = options.val_batch_size = 1;
  if (single || stream) options.num_workers = "0";
}

HtmlGallery::Picture picture_of(const ShownVersion& version, bool numbers, bool several) {
  HtmlGallery::Picture out{.file = version.png, .height = version.png_height, .width = version.png_width};
  if (!version.png.empty()) out.scale = std::max<int64_t>(1, kSmallestSide / std::max(out.height, out.width));
  if (several) out.lines.emplace_back("epoch " + std::to_string(version.epoch + 1), "");
  for (const auto& [name, value] : version.labels)
    out.lines.emplace_back(name, numbers ? short_number(value) : printed("%.1f %%", 100 * value));
  if (!version.problem.empty()) out.lines.emplace_back(version.problem, "");
  return out;
}

/// Returns a message with the sizes of the first image that is scaled down; "" if there is none.
std::string reduction_of(const DataShow& show) {
  for (const auto& sample : show.samples)
    for (const auto& v : sample.versions)
      if (v.png_height < v.height || v.png_width < v.width)
        return str_cat("pictures are scaled down, from ", v.width, " x ", v.height, " to ", v.png_width, " x ", v.png_height,
                       " pixels; fewer images or versions are shown larger");
  return "";
}

Json json_of(const ShownVersion& version) {
  auto labels = Json::object();
  for (const auto& [name, value] : version.labels) labels.set(name, value);
  return Json::object(
      {{"epoch", version.epoch}, {"labels", std::move(labels)}, {"problem", version.problem.empty() ? Json() : Json(version.problem)}});
}

}  // namespace

DataShow show_data(const RunConfig& config, const DataShowOptions& given, const Parts& parts,
                   const std::function<void(int64_t, int64_t)>& progress) {
  return translated(kDataShow, [&] {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()));
    auto pair = parts.datasets.make(config.data, "data", parts.transforms);
    set_collate(pair, parts.collates);
    auto* stream = given.validation ? nullptr : dynamic_cast<ImageStream*>(pair.train_stream.get());
    auto options = given;
    if (options.versions <= 0) options.versions = options.validation || stream != nullptr ? 1 : kTrainVersions;
    check(options.images > 0 && options.versions <= kMostImages && options.images <= kMostImages / options.versions, ErrorKind::Usage,
          kDataShow, options.images, " images in ", options.versions, " versions; allowed: at least one and at most ", kMostImages,
          " in all");
    check(stream == nullptr || options.versions == 1, ErrorKind::Usage, kDataShow, options.versions,
          " versions of a stream, which has other images at its beginning in each epoch; allowed: 1");
    const auto& data = options.validation ? pair.val : pair.train;
    check(data != nullptr || stream != nullptr, ErrorKind::Usage, kDataShow,
          options.validation ? "there are no validation data" : "the training data are a stream, and not one of images");
    const auto device = run_device(config);
    const bool mixes = !options.validation && (pair.options.mixup_alpha > 0 || pair.options.cutmix_alpha > 0);
    read_only_shown(pair.options, mixes, stream != nullptr);
    // With as many ranks as samples, the first rank has one micro-batch per epoch, wherever the epoch begins, so that nothing is read
    // ahead.
    LoaderOptions runtime{.seed = static_cast<uint64_t>(config.seed),
                          .world_size = stream != nullptr ? 1 : std::max<int64_t>(1, data->size())};
    if (config.trainer.static_shapes) runtime.last_batch = LastBatch::Pad;
    const auto& pipeline = options.validation ? pair.val_pipeline : pair.train_pipeline;
    DataShow out{.name = config.data.name,
                 .summary = pair.summary(),
                 .split = options.validation ? "val" : "train",
                 .transforms = names_of_steps(pipeline)};
    out.mixing = mixes ? mixing_of(pair.options) : "none";
    out.where = "host";
    out.seed = config.seed;
    const auto* images = dynamic_cast<const ImageDataset*>(data.get());
    out.numbers = images != nullptr && images->has_numbers();
    const auto info = pair.info();
    if (pair.options.augment_on == "device" && info.shape.size() == 3)
      out.where =
          where_it_runs(pipeline, split_for_device(pipeline, info.shape[0], {info.shape[1], info.shape[2]})) + " (" + device.str() + ")";
    auto loader = options.validation ? val_loader(pair, runtime) : train_loader(pair, runtime);
    out.samples = stream != nullptr ? first_samples(*stream, info, runtime.seed, options.images)
                                    : chosen_samples(*data, loader.options().subset, info, runtime.seed, options.images);
    const auto all = static_cast<int64_t>(out.samples.size()) * options.versions;
    int64_t done = 0;
    SampleShow show(out, pair, std::move(loader), device, options);
    for (int64_t epoch = 0; epoch < options.versions; ++epoch)
      show.show_epoch(epoch, [&] {
        if (progress) progress(++done, all);
      });
    return out;
  });
}

Report report_of(const DataShow& show) {
  Report out("Images as the model sees them",
             Json::object({{"name", show.name}, {"summary", show.summary}, {"split", show.split}, {"seed", show.seed}}));
  const auto versions = show.samples.empty() ? 0 : static_cast<int64_t>(show.samples.front().versions.size());
  const auto count = static_cast<int64_t>(show.samples.size());
  out.verdict(with_commas(count) + (count == 1 ? " image" : " images") +
              (versions == 1 ? "" : " in " + with_commas(versions) + " versions") + ", as they are in the first " +
              (versions == 1 ? "epoch" : with_commas(versions) + " epochs") + " of a " +
              (show.split == "val" ? "validation" : "training with seed " + std::to_string(show.seed)));
  int64_t missing = 0;
  for (const auto& sample : show.samples)
    missing += std::count_if(sample.versions.begin(), sample.versions.end(), [](const auto& version) { return !version.problem.empty(); });
  if (missing > 0)
    out.say(with_commas(missing) + " of " + with_commas(count * versions) + " pictures are missing; the page has the reasons", Tone::Warn);
  if (const auto reduction = reduction_of(show); !reduction.empty()) out.say(reduction, Tone::Warn);
  out.facts({both("data", show.summary), both("transforms", show.transforms), both("mixing", show.mixing),
             both("transformed_on", "transformed on", show.where)});
  HtmlGallery gallery{.title = "Images", .group_name = "class"};
  Json samples = Json::array();
  for (const auto& sample : show.samples) {
    HtmlGallery::Item item{.title = (sample.label.empty() ? "" : sample.label + ", ") + "sample " + std::to_string(sample.index) +
                                    (sample.file.empty() ? "" : ", " + sample.file),
                           .group = sample.label};
    Json seen = Json::array();
    for (const auto& version : sample.versions) {
      seen.push_back(json_of(version));
      item.pictures.push_back(picture_of(version, show.numbers, versions > 1));
      if (!version.problem.empty()) item.tone = Tone::Bad;
    }
    samples.push_back(
        Json::object({{"sample", sample.index}, {"file", sample.file}, {"class", sample.label}, {"versions", std::move(seen)}}));
    gallery.items.push_back(std::move(item));
  }
  out.data({{"images", std::move(samples)}});
  out.gallery(std::move(gallery));
  return out;
}

}  // namespace npu_train
