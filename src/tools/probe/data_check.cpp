#include "npu_train/tools/probe/data_check.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/image_stream.hpp"

namespace npu_train {
namespace {

/// Returns the classes of a sample, none if its target is no class.
std::vector<int64_t> labels_of(const Sample& sample, int64_t classes) {
  std::vector<int64_t> out;
  for (const auto& [name, value] : sample.fields) {
    if (name != "target") continue;
    if (value.numel() == 1 && value.scalar_type() == at::kLong)
      if (const auto label = value.item<int64_t>(); label >= 0 && label < classes) out.push_back(label);
    if (value.dim() != 1 || value.scalar_type() != at::kFloat || value.numel() != classes) continue;
    for (int64_t c = 0; c < classes; ++c)
      if (value[c].item<float>() > 0.5f) out.push_back(c);
  }
  return out;
}

/// Reads all samples of one split.
class SplitReader {
 public:
  SplitReader(std::string split, int64_t classes) : split_(std::move(split)), counts_(static_cast<size_t>(classes)) {}

  void read(const Dataset& data) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t i = 0; (i = next++) < data.size();) note(i, data.where(i), [&] { return data.get(i); });
    };
    samples_ = data.size();
    run_in_threads(work);
  }

  void read(IterableDataset& data) {
    data.begin_epoch(0);
    if (auto* images = dynamic_cast<ImageStream*>(&data)) return read_images(*images);
    for (bool more = true; more && bad_.empty();) {
      note(samples_++, "", [&] {
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
  template <class Work>
  void run_in_threads(const Work& work) {
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < std::min<int64_t>(16, cpu_count()); ++i) threads.emplace_back(work);
    work();
    for (auto& thread : threads) thread.join();
    std::sort(bad_.begin(), bad_.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  }

  /// Only the places of images are read in sequence.
  void read_images(ImageStream& data) {
    std::mutex reading;
    bool ended = false;
    const auto next = [&]() -> std::optional<std::pair<int64_t, PendingImage>> {
      const std::lock_guard lock(reading);
      while (!ended) {
        try {
          if (auto image = data.next_image()) return std::pair(samples_++, std::move(*image));
          ended = true;
        } catch (...) {
          note_error(samples_++, "");
        }
      }
      return std::nullopt;
    };
    run_in_threads([&] {
      while (const auto image = next())
        note(image->first, image->second.where,
             [&] { return decoded_sample(image->second.read(), image->second.where, /*targets=*/false, image->first); });
    });
  }

  template <class Get>
  void note(int64_t index, const std::string& place, Get&& get) {
    try {
      const auto labels = labels_of(get(), static_cast<int64_t>(counts_.size()));
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

DataCheck check_data(const RunConfig& config, const Parts& parts) {
  return translated("data check", [&] {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()));
    const auto pair = parts.datasets.make(config.data, "data", parts.transforms);
    DataCheck out;
    out.summary = pair.summary();
    const auto info = pair.info();
    SplitReader train("train", info.num_classes), val("val", info.num_classes);
    if (pair.train != nullptr) train.read(*pair.train);
    if (pair.train_stream != nullptr) train.read(*pair.train_stream);
    if (pair.val != nullptr) val.read(*pair.val);
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

Report report_of(const DataCheck& check) {
  Report out("Check of the data", Json::object({{"summary", check.summary}, {"train", check.train}, {"val", check.val}}));
  out.say("data: " + check.summary);
  ReportTable classes, bad{.layout = ReportTable::Layout::List};
  for (const auto& c : check.classes) classes.add({both("class", c.name), both("train", c.train), both("val", c.val)});
  for (const auto& b : check.bad) {
    const bool named = b.place.empty() || b.message.find(b.place) != std::string::npos;
    bad.add({both("split", b.split), both("index", {b.index, std::to_string(b.index)}), data("place", b.place), data("message", b.message),
             shown("message", (named ? "" : b.place + ": ") + b.message)});
  }
  out.table("classes", std::move(classes));
  if (check.passed())
    out.verdict("every sample can be read", Tone::Good);
  else
    out.verdict(
        with_commas(static_cast<int64_t>(check.bad.size())) + " of " + with_commas(check.train + check.val) + " samples cannot be read:",
        Tone::Bad);
  out.table("bad", std::move(bad));
  if (!check.passed()) out.remarks("hint", {"repair or remove them, or train with data.on_bad_sample=skip"});
  out.data({{"passed", check.passed()}});
  return out;
}

}  // namespace npu_train
