#include "npu_train/tools/probe/data_check.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_stream.hpp"
#include "tools/probe/each_sample.hpp"

namespace npu_train {
namespace {

/// Reads all samples of one split.
class SplitReader {
 public:
  SplitReader(std::string split, int64_t classes) : split_(std::move(split)), counts_(static_cast<size_t>(classes)) {}

  void read(const Dataset& data, const std::function<void(int64_t)>& begun) {
    samples_ = data.size();
    detail::each_sample(
        samples_,
        [&](int64_t i) {
          note(i, [&](std::string& place) {
            place = data.where(i);
            return data.get(i);
          });
        },
        begun);
    sort_bad();
  }

  void read(IterableDataset& data) {
    data.begin_epoch(0);
    if (auto* images = dynamic_cast<ImageStream*>(&data)) return read_images(*images);
    for (bool more = true; more && bad_.empty();) {
      note(samples_++, [&](std::string&) {
        auto sample = data.next();
        more = sample.has_value();
        return sample.value_or(Sample{});
      });
      if (!more) --samples_;
    }
  }

  std::vector<BadSample>& bad() { return bad_; }
  int64_t samples() const { return samples_; }
  int64_t count(size_t label) const { return counts_[label]; }

 private:
  void sort_bad() {
    std::sort(bad_.begin(), bad_.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  }

  void read_images(ImageStream& data) {
    samples_ = detail::each_image(
        data,
        [&](int64_t i, const PendingImage& image) {
          note(i, [&](std::string& place) {
            place = image.where;
            return decoded_sample(image.read(), place, /*targets=*/false, i);
          });
        },
        [&](int64_t i) { note_error(i, ""); });
    sort_bad();
  }

  /// `get(place)` sets the sample's place, which the data set of a program may fail to tell, and returns the sample.
  template <class Get>
  void note(int64_t index, Get&& get) {
    std::string place;
    try {
      const auto labels = detail::labels_of(get(place), static_cast<int64_t>(counts_.size()));
      const std::lock_guard lock(mutex_);
      for (const auto label : labels) ++counts_[static_cast<size_t>(label)];
    } catch (...) {
      note_error(index, place);
    }
  }

  /// Notes the current exception.
  void note_error(int64_t index, const std::string& place) {
    const auto error = translate_current_exception("data");
    const std::lock_guard lock(mutex_);
    bad_.push_back({split_, index, place, error.what()});
  }

  std::string split_;
  std::vector<int64_t> counts_;
  std::vector<BadSample> bad_;
  int64_t samples_ = 0;  // for a stream, the samples before the first unreadable one
  std::mutex mutex_;
};

}  // namespace

DataCheck check_data(const RunConfig& config, const Parts& parts, const std::function<void(int64_t, int64_t)>& progress) {
  return translated("data check", [&] {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()));
    const auto pair = parts.datasets.make(config.data, "data", parts.transforms);
    DataCheck out;
    out.summary = pair.summary();
    const auto info = pair.info();
    SplitReader train("train", info.num_classes), val("val", info.num_classes);
    const int64_t first = pair.train != nullptr ? pair.train->size() : 0, all = first + (pair.val != nullptr ? pair.val->size() : 0);
    const auto show = [&](int64_t done) {
      if (progress && all > 0) progress(done, all);
    };
    if (pair.train != nullptr) train.read(*pair.train, show);
    if (pair.train_stream != nullptr) train.read(*pair.train_stream);
    if (pair.val != nullptr) val.read(*pair.val, [&](int64_t done) { show(first + done); });
    show(all);
    out.train = train.samples();
    out.val = val.samples();
    const auto* images = dynamic_cast<const ImageDataset*>(pair.train.get());
    const bool counted = images == nullptr || !images->has_numbers();
    for (size_t i = 0; counted && i < static_cast<size_t>(info.num_classes); ++i)
      out.classes.push_back({i < info.class_names.size() ? info.class_names[i] : std::to_string(i), train.count(i), val.count(i)});
    for (auto* reader : {&train, &val}) std::move(reader->bad().begin(), reader->bad().end(), std::back_inserter(out.bad));
    return out;
  });
}

ReportTable table_of_bad_samples(const std::vector<BadSample>& bad) {
  ReportTable out{.layout = ReportTable::Layout::List};
  for (const auto& b : bad) {
    const bool named = b.place.empty() || b.message.find(b.place) != std::string::npos;
    out.add({both("split", b.split), both("index", {b.index, std::to_string(b.index)}), data("place", b.place), data("message", b.message),
             shown("message", (named ? "" : b.place + ": ") + b.message)});
  }
  return out;
}

Report report_of(const DataCheck& check) {
  Report out("Check of the data", Json::object({{"summary", check.summary}, {"train", check.train}, {"val", check.val}}));
  out.say("data: " + check.summary);
  ReportTable classes;
  for (const auto& c : check.classes) classes.add({both("class", c.name), both("train", c.train), both("val", c.val)});
  out.table("classes", std::move(classes));
  if (check.passed())
    out.verdict("every sample can be read", Tone::Good);
  else
    out.verdict(
        with_commas(static_cast<int64_t>(check.bad.size())) + " of " + with_commas(check.train + check.val) + " samples cannot be read:",
        Tone::Bad);
  out.table("bad", table_of_bad_samples(check.bad));
  if (!check.passed()) out.remarks("hint", {"repair or remove them, or train with data.on_bad_sample=skip"});
  out.data({{"passed", check.passed()}});
  return out;
}

}  // namespace npu_train
