#include "data/shard_samples.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/image_file.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/tar.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostParts = 1000;
constexpr uint64_t kMostLabelBytes = uint64_t{1} << 20;

// Returns key and extension of a member; nullopt for a member that belongs to no sample.
std::optional<std::pair<std::string, std::string>> key_of(const std::string& name) {
  const auto folder = name.rfind('/') + 1;  // 0 for a name without a folder
  const auto dot = name.find('.', folder);
  const auto first = std::string_view(name).substr(0, name.find('/'));
  const bool meta = first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
  if (dot == std::string::npos || dot == folder || meta) return std::nullopt;
  return std::pair(name.substr(0, dot), to_lower(name.substr(dot + 1)));
}

// Returns the only part that has one of these extensions. Error(Data) if there is no such part, or more than one.
const SamplePart& part_of(const ShardSample& sample, const std::vector<std::string>& extensions, const std::string& where) {
  const auto is_wanted = [&](const SamplePart& part) {
    return std::find(extensions.begin(), extensions.end(), part.extension) != extensions.end();
  };
  const auto count = std::count_if(sample.parts.begin(), sample.parts.end(), is_wanted);
  std::vector<std::string> there;
  for (const auto& part : sample.parts) there.push_back(visible_start(part.extension, 40));
  check(count == 1, ErrorKind::Data, "webdataset", where, ": has ", count, " parts of ", join(extensions), "; allowed: one; it has ",
        first_few(there, 10), "; hint: data.image and data.label name the parts",
        count == 0 ? ", which follow one another in the archive: tar --sort=name" : "");
  return *std::find_if(sample.parts.begin(), sample.parts.end(), is_wanted);
}

void check_part_size(const SamplePart& part, uint64_t most, const std::string& where) {
  check(part.size <= most, ErrorKind::Data, "webdataset", where, ": its ", part.extension, " has ", part.size, " bytes; allowed: at most ",
        most);
}

// Returns the text of a label, which in a JSON object is the value at `key`.
std::string label_text(const std::string& content, const std::string& extension, const std::string& key, const std::string& where) {
  if (extension != "json" && !extension.ends_with(".json")) return std::string(trimmed_view(content));
  const auto document = parse_json(content, where);
  const auto& value = document.at(key, where);
  return value.is_text() ? value.text(where) : std::to_string(value.integer(where + ": " + key));
}

int64_t class_of(const std::string& text, const DatasetInfo& info, const std::string& where) {
  const auto& names = info.class_names;
  const auto named = std::find(names.begin(), names.end(), text);
  check(named == names.end() || std::find(named + 1, names.end(), text) == names.end(), ErrorKind::Data, "webdataset", where,
        ": its class is '", visible_start(text, 40),
        "', which data.class_names has twice; hint: different names, or numbers in the archives");
  if (named != names.end()) return named - names.begin();
  const auto number = whole_number(text);
  check(number && *number >= 0 && *number < info.num_classes, ErrorKind::Data, "webdataset", where, ": its class is '",
        visible_start(text, 40), "'; allowed: 0 to ", info.num_classes - 1,
        names.empty() ? "; hint: data.class_names allows names" : ", and the names in data.class_names");
  return *number;
}

}  // namespace

std::optional<ShardSample> next_sample(const ReadableFile& shard, uint64_t& position) {
  std::optional<ShardSample> out;
  for (auto after = position;;) {
    auto member = next_tar_member(shard, after);
    const auto named = member ? key_of(member->name) : std::nullopt;
    if (member && !named) continue;
    if (out && (!member || named->first != out->key)) return out;  // `position` is behind its last part
    if (!member) return std::nullopt;
    if (!out) out = ShardSample{member->begin, named->first, {}};
    check(out->parts.size() < kMostParts, ErrorKind::Data, "webdataset", where_sample(shard.path(), *out), ": more than ", kMostParts,
          " parts");
    out->parts.push_back({named->second, member->offset, member->size});
    position = after;
  }
}

std::string where_sample(const std::filesystem::path& shard, const ShardSample& sample) {
  return shard.string() + ", sample " + visible_start(sample.key, 200);
}

LabelledImage read_sample(const std::filesystem::path& shard, const ShardSample& sample, const SampleParts& parts,
                          const DatasetInfo& info) {
  const auto where = where_sample(shard, sample);
  const auto& image = part_of(sample, parts.image, where);
  const auto& label = part_of(sample, {parts.label}, where);
  check_part_size(image, kMaxImageFile, where);
  check_part_size(label, kMostLabelBytes, where);
  const ReadableFile file(shard);
  LabelledImage out;
  out.label = class_of(label_text(file.read(label.offset, label.size), label.extension, parts.label_key, where), info, where);
  out.encoded.resize(image.size);
  file.read(image.offset, out.encoded.data(), out.encoded.size());
  return out;
}

ShardImages::ShardImages(std::vector<std::filesystem::path> shards, SampleParts parts, DatasetInfo info)
    : shards_(std::move(shards)), parts_(std::move(parts)), info_(std::move(info)) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ReadableFile file(shards_[i]);
    uint64_t position = 0;
    while (auto sample = next_sample(file, position)) samples_.push_back({i, std::move(*sample)});
  }
  check(!samples_.empty(), ErrorKind::Data, "webdataset", shards_.empty() ? "" : shards_.front().string(), ": no sample in ",
        shards_.size(), " archives");
}

std::string ShardImages::where(int64_t index) const {
  const auto& entry = samples_.at(static_cast<size_t>(index));
  return where_sample(shards_[entry.shard], entry.sample);
}

LabelledImage ShardImages::image(int64_t index) const {
  const auto& entry = samples_.at(static_cast<size_t>(index));
  return read_sample(shards_[entry.shard], entry.sample, parts_, info_);
}

}  // namespace npu_train::detail
