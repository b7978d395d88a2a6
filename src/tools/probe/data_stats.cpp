#include "npu_train/tools/probe/data_stats.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <tuple>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_stream.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/io/file.hpp"
#include "tools/probe/each_sample.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;
using SampleProgress = std::function<void(int64_t, int64_t)>;

constexpr uint64_t kMaxImageFile = uint64_t{512} << 20;

/// Images without classes.
class PlainImages final : public ImageDataset {
 public:
  explicit PlainImages(const std::string& folder) : files_(image_files({folder})) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  LabelledImage image(int64_t index) const override {
    const auto bytes = read_file(files_.at(static_cast<size_t>(index)), kMaxImageFile);
    return {{}, {bytes.begin(), bytes.end()}, -1};
  }
  std::string where(int64_t index) const override { return files_.at(static_cast<size_t>(index)); }

 private:
  std::vector<std::string> files_;
};

std::vector<ChannelStatistics> channels_of(const Image& image) {
  const Image planes = image.dense(PixelOrder::Planar);
  std::vector<ChannelStatistics> out(static_cast<size_t>(planes.channels()));
  for (size_t c = 0; c < out.size(); ++c) {
    const auto* value = planes.plane(static_cast<int64_t>(c));
    for (int64_t i = 0; i < planes.pixels(); ++i) ++out[c].counts[value[i]];
  }
  return out;
}

/// The counted properties of one sample.
struct Seen {
  std::vector<int64_t> labels{};
  std::pair<int64_t, int64_t> size{};
  std::string mode{};  ///< "": no image
  std::vector<ChannelStatistics> channels{};
  int64_t length = -1;  ///< -1: no text
  std::optional<uint64_t> digest{};
};

/// Returns the digest of all fields except the target; nullopt if there are no other fields.
std::optional<uint64_t> digest_of(const Sample& sample) {
  Hasher hasher;
  bool any = false;
  for (const auto& [name, value] : sample.fields) {
    if (name == "target") continue;
    const auto of_field = digest(value);
    hasher.update(&of_field, sizeof of_field);
    any = true;
  }
  return any ? std::optional(hasher.digest()) : std::nullopt;
}

std::string kind_of_channels(int64_t channels) {
  static constexpr const char* kKinds[] = {"gray", "gray and alpha", "RGB", "RGB and alpha"};
  return channels >= 1 && channels <= 4 ? kKinds[channels - 1] : std::to_string(channels) + " channels";
}

void note_size_and_mode(const LabelledImage& image, const std::string& where, Seen& out) {
  static constexpr const char* kFormats[] = {"JPEG", "PNG", "WebP", "BMP"};  // in the order of ImageHeader::Format
  if (!image.pixels.empty()) {
    out.size = {image.pixels.height(), image.pixels.width()};
    out.mode = "in memory, " + kind_of_channels(image.pixels.channels());
    return;
  }
  const auto header = read_header(image.encoded, where);
  const bool jpeg = header.format == ImageHeader::Format::Jpeg;
  const auto kind = header.palette ? "palette" : jpeg && header.channels == 4 ? "CMYK" : kind_of_channels(header.channels);
  out.size = {header.height, header.width};
  out.mode = std::string(kFormats[static_cast<size_t>(header.format)]) + ", " + kind +
             (header.bits == 8 ? "" : ", " + std::to_string(header.bits) + (header.bits == 1 ? " bit" : " bits"));
}

/// Whether the class of every sample is known without reading it, so that samples can be drawn and weighted by class.
bool knows_labels(const Dataset& data) {
  for (int64_t i = 0; i < data.size(); ++i)
    if (data.label(i) < 0) return false;
  return true;
}

/// Counts the samples of both splits.
class SampleCounter {
 public:
  SampleCounter(DataStatistics& out, int64_t classes, const Pipeline* pipeline, uint64_t seed)
      : out_(out), classes_(classes), pipeline_(pipeline), seed_(seed) {}

  void count(const Dataset& data, const std::string& split, const std::function<void(int64_t)>& begun) {
    const auto* images = pipeline_ != nullptr ? dynamic_cast<const ImageDataset*>(&data) : nullptr;
    detail::each_sample(
        data.size(),
        [&](int64_t i) {
          note(split, i, [&](std::string& place) {
            place = data.where(i);
            return images != nullptr ? of_image(*images, i, place, split == "train") : of_sample(data.get(i));
          });
        },
        begun);
  }

  int64_t count(IterableDataset& stream) {
    stream.begin_epoch(0);
    if (auto* images = dynamic_cast<ImageStream*>(&stream)) return count_images(*images);
    for (int64_t i = 0;; ++i) {
      std::optional<Sample> sample;
      if (!note("train", i, [&](std::string&) { return (sample = stream.next()) ? of_sample(*sample) : Seen{}; })) return i + 1;
      if (!sample) return i;
    }
  }

  /// Returns the groups of samples with equal digests, in the order of their first samples.
  std::vector<std::vector<RepeatedSample>> repeated(const DatasetPair& pair) {
    std::sort(digests_.begin(), digests_.end());
    std::vector<std::vector<RepeatedSample>> out;
    for (size_t begin = 0, end = 0; begin < digests_.size(); begin = end) {
      const auto digest = std::get<0>(digests_[begin]);
      while (end < digests_.size() && std::get<0>(digests_[end]) == digest) ++end;
      if (end - begin == 1) continue;
      auto& group = out.emplace_back();
      for (size_t i = begin; i < end; ++i) {
        const auto& [same, split, index] = digests_[i];
        const auto& data = split == "train" ? pair.train : pair.val;
        group.push_back({split, index, data != nullptr ? data->where(index) : std::string()});
      }
    }
    const auto key = [](const auto& group) { return std::tie(group.front().split, group.front().index); };
    std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    return out;
  }

 private:
  int64_t count_images(ImageStream& stream) {
    return detail::each_image(
        stream,
        [&](int64_t i, const PendingImage& image) {
          note("train", i, [&](std::string& place) {
            place = image.where;
            if (pipeline_ == nullptr) return of_sample(decoded_sample(image.read(), place, /*targets=*/false, i));
            return of_image(image.read(), i, place, /*with_pixels=*/true);
          });
        },
        [&](int64_t i) { note_error("train", i, ""); });
  }

  /// Returns the counted properties of an image with a label.
  Seen of_image(const LabelledImage& image, int64_t index, const std::string& place, bool with_pixels) const {
    Seen out;
    note_size_and_mode(image, place, out);
    if (image.label >= 0 && image.label < classes_) out.labels = {image.label};
    auto rng = sample_rng(seed_, 0, index);
    const auto pixels = pipeline_->run_to_bytes(image, place, rng);  // also checks that uncounted images are readable
    if (with_pixels) out.channels = channels_of(pixels);
    return out;
  }

  Seen of_image(const ImageDataset& images, int64_t index, const std::string& place, bool with_pixels) const {
    const auto image = images.image(index);
    Seen out = of_image(image, index, place, with_pixels);
    if (images.targets() > 0) out.labels.clear();
    for (size_t c = 0; !images.has_numbers() && c < image.targets.size(); ++c)
      if (image.targets[c] > 0.5f) out.labels.push_back(static_cast<int64_t>(c));
    if (const auto* captions = dynamic_cast<const CaptionedImages*>(&images))
      out.length = static_cast<int64_t>(captions->caption(index).size());
    return out;
  }

  Seen of_sample(const Sample& sample) const {
    Seen out{.labels = detail::labels_of(sample, classes_)};
    if (pipeline_ == nullptr) out.digest = digest_of(sample);
    for (const auto& [name, value] : sample.fields)
      if (name == "input" && value.dim() == 1 && value.scalar_type() == at::kLong) out.length = value.numel();
    return out;
  }

  /// Counts one sample. `look(place)` sets the place of the sample, which may throw in a user-defined data set, and returns the counted
  /// properties of the sample. Returns false if the sample is bad.
  template <class Look>
  bool note(const std::string& split, int64_t index, Look&& look) {
    std::string place;
    try {
      const Seen seen = look(place);
      const std::lock_guard lock(mutex_);
      for (const auto label : seen.labels) {
        auto& of_class = out_.classes.at(static_cast<size_t>(label));
        ++(split == "train" ? of_class.train : of_class.val);
      }
      if (!seen.mode.empty()) ++out_.sizes[seen.size], ++out_.modes[seen.mode];
      if (seen.length >= 0) ++out_.lengths[seen.length];
      if (seen.digest) digests_.emplace_back(*seen.digest, split, index);
      if (out_.channels.size() < seen.channels.size()) out_.channels.resize(seen.channels.size());
      for (size_t c = 0; c < seen.channels.size(); ++c) out_.channels[c].add(seen.channels[c]);
      return true;
    } catch (...) {
      note_error(split, index, place);
      return false;
    }
  }

  /// Adds a bad sample with the message of the current exception.
  void note_error(const std::string& split, int64_t index, const std::string& place) {
    const auto error = translate_current_exception("data");
    const std::lock_guard lock(mutex_);
    out_.bad.push_back({split, index, place, error.what()});
  }

  DataStatistics& out_;
  int64_t classes_;
  const Pipeline* pipeline_;  // nullptr: images are only decoded
  uint64_t seed_;
  std::vector<std::tuple<uint64_t, std::string, int64_t>> digests_;  // digest, split and index of each sample
  std::mutex mutex_;
};

/// Whether the folder contains folders, which are classes or the splits train, val and test.
bool has_folders(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->path().filename().string().front() != '.' && it->is_directory(gone)) return true;
  }
  return false;
}

}  // namespace

DataStatistics detail::count_samples(const DatasetPair& pair, const Pipeline* pipeline, uint64_t seed, const SampleProgress& progress) {
  DataStatistics out;
  out.summary = pair.summary();
  const auto info = pair.info();
  const auto* images = dynamic_cast<const ImageDataset*>(pair.train.get());
  for (size_t c = 0; (images == nullptr || !images->has_numbers()) && c < static_cast<size_t>(info.num_classes); ++c)
    out.classes.push_back({c < info.class_names.size() ? info.class_names[c] : std::to_string(c), 0, 0});
  out.labelled = pipeline != nullptr && !out.classes.empty() && pair.train != nullptr && knows_labels(*pair.train);
  if (const auto* texts = dynamic_cast<const SequenceDataset*>(pair.train.get())) out.context = texts->longest();
  if (const auto* captions = dynamic_cast<const CaptionedImages*>(pair.train.get())) out.context = captions->longest();
  SampleCounter counter(out, static_cast<int64_t>(out.classes.size()), pipeline, seed);
  out.train = pair.train != nullptr ? pair.train->size() : 0;
  out.val = pair.val != nullptr ? pair.val->size() : 0;
  const auto all = out.train + out.val;
  const auto show = [&](int64_t done) {
    if (progress && all > 0) progress(done, all);
  };
  if (pair.train != nullptr) counter.count(*pair.train, "train", show);
  if (pair.train_stream != nullptr) out.train = counter.count(*pair.train_stream);
  if (pair.val != nullptr) counter.count(*pair.val, "val", [&, first = all - out.val](int64_t done) { show(first + done); });
  show(all);
  out.repeated = counter.repeated(pair);
  std::sort(out.bad.begin(), out.bad.end(),
            [](const auto& a, const auto& b) { return std::tie(a.split, a.index) < std::tie(b.split, b.index); });
  return out;
}

void ChannelStatistics::add(const ChannelStatistics& other) {
  for (size_t v = 0; v < counts.size(); ++v) counts[v] += other.counts[v];
}

int64_t ChannelStatistics::pixels() const {
  int64_t out = 0;
  for (const auto count : counts) out += count;
  return out;
}

int64_t ChannelStatistics::sum() const {
  int64_t out = 0;
  for (size_t v = 0; v < counts.size(); ++v) out += counts[v] * static_cast<int64_t>(v);
  return out;
}

int64_t ChannelStatistics::sum_of_squares() const {
  int64_t out = 0;
  for (size_t v = 0; v < counts.size(); ++v) out += counts[v] * static_cast<int64_t>(v * v);
  return out;
}

double ChannelStatistics::mean() const {
  const auto n = pixels();
  return n == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(sum()) / (255.0 * static_cast<double>(n));
}

double ChannelStatistics::std() const {
  const auto n = pixels();
  const double center = static_cast<double>(sum()) / static_cast<double>(n);
  double squares = 0;
  for (size_t v = 0; v < counts.size(); ++v) {
    const double distance = static_cast<double>(v) - center;
    squares += static_cast<double>(counts[v]) * distance * distance;
  }
  return n == 0 ? std::numeric_limits<double>::quiet_NaN() : std::sqrt(squares / static_cast<double>(n)) / 255;
}

DataStatistics data_statistics(const RunConfig& config, const Parts& parts, const SampleProgress& progress) {
  return translated("data stats", [&] {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()));
    const auto pair = parts.datasets.make(config.data, "data", parts.transforms);
    auto out = detail::count_samples(pair, &pair.val_pipeline, static_cast<uint64_t>(config.seed), progress);
    out.transformed = !out.channels.empty();
    return out;
  });
}

DataStatistics folder_statistics(const std::string& folder, const Parts& parts, const SampleProgress& progress) {
  return translated("data stats", [&] {
    DatasetPair pair;
    if (has_folders(folder)) {
      const ScopedLogSilence silence;  // no warning if there are no validation images
      pair = parts.datasets.make(part("image_folder", {{"root", folder}}), "data", parts.transforms);
    } else {
      pair.train = std::make_shared<PlainImages>(folder);
    }
    const Pipeline as_stored;
    return detail::count_samples(pair, &as_stored, 0, progress);
  });
}

}  // namespace npu_train
