#include "engine/equal_data.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/data/image_stream.hpp"
#include "npu_train/device/random.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kRecords = 64;

void add_line(std::string& out, const std::string& line) { out += visible_text(line) + '\n'; }

void describe(std::string& out, const std::string& which, const DatasetInfo& info) {
  add_line(out, which + " of " + std::to_string(info.num_classes) + " classes");
  for (size_t c = 0; c < info.class_names.size(); ++c)
    add_line(out, "class " + std::to_string(c) + " of " + which + ": " + info.class_names[c]);
  add_line(out, which + " of samples of shape " + str_cat(at::IntArrayRef(info.shape)));
}

// Describes the data by everything that is known once they are open.
std::string description(const DatasetPair& data) {
  std::string out;
  const auto describe_set = [&](const std::string& which, const Dataset* set) {
    if (set == nullptr) return add_line(out, "no " + which);
    add_line(out, which + " of " + std::to_string(set->size()) + " samples");
    describe(out, which, set->info());
  };
  if (data.train_stream != nullptr) {
    describe(out, "a stream of training data", data.train_stream->info());
    if (const auto* images = dynamic_cast<const ImageStream*>(data.train_stream.get())) add_line(out, "a stream from " + images->source());
  } else {
    describe_set("training data", data.train.get());
  }
  describe_set("validation data", data.val.get());
  return out;
}

// Returns a digest of a record. For a record that cannot be read, which a run may tolerate, returns only "unreadable", because the error's
// message may name a local file.
std::string content_of(const Dataset& set, int64_t index) {
  try {
    Hasher hasher;
    for (const auto& [name, tensor] : set.get(index).fields) {
      const auto content = digest(tensor);
      hasher.update(name.data(), name.size());
      hasher.update(&content, sizeof content);
    }
    return hex64(hasher.digest());
  } catch (const std::exception&) {
    return "unreadable";
  }
}

// Two texts with one line per record: the contents to compare, and their sources for messages.
struct Records {
  std::string contents, places;
};

// Draws one record from each of several equally long parts of the data.
Records records(const DatasetPair& data, uint64_t seed) {
  Records out;
  for (const auto& [which, set] : {std::pair("training", data.train.get()), std::pair("validation", data.val.get())}) {
    if (set == nullptr) continue;
    const int64_t size = set->size(), count = std::min(size, kRecords);
    Philox rng(derive_seed(seed, "compared records"));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = size / count * i, length = i + 1 < count ? size / count : size - begin;
      const auto index = begin + static_cast<int64_t>(rng.uniform() * static_cast<float>(length - 1));
      add_line(out.contents, str_cat("record ", index, " of the ", which, " data with the digest ", content_of(*set, index)));
      add_line(out.places, set->where(index));
    }
  }
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// Throws an Error if the lines of a rank differ from those of rank 0. `of_ranks`: one text per rank; `places`: the source of each line.
void refuse_difference(const std::vector<std::string>& of_ranks, const std::vector<std::string>& hosts,
                       const std::vector<std::string>& places) {
  const auto line = [](const std::vector<std::string>& lines, size_t i) { return i < lines.size() ? lines[i] : std::string(); };
  const auto shown = [&](size_t r, size_t i) {
    const auto text = line(lines_of(of_ranks[r]), i), place = places.empty() ? "" : line(lines_of(places[r]), i);
    return str_cat("rank ", r, " (", hosts[r], ") has ", text.empty() ? "nothing more" : text, place.empty() ? "" : " (" + place + ")");
  };
  const auto main = lines_of(of_ranks[0]);
  for (size_t r = 1; r < of_ranks.size(); ++r) {
    const auto own = lines_of(of_ranks[r]);
    if (own == main) continue;
    size_t i = 0;
    while (line(own, i) == line(main, i)) ++i;
    throw Error(ErrorKind::Data, "data", "the ranks have different data: " + shown(r, i) + ", and " + shown(0, i),
                "the files must be the same, and in the same order, on every machine");
  }
}

}  // namespace

void check_equal_data(Ranks& ranks, const DatasetPair& data, uint64_t seed) {
  if (ranks.size() == 1) return;
  const RandomState before{std::vector<c10::Device>{}};
  const RandomState::Scope same(before);
  const auto found = description(data);
  const auto own = records(data, seed);
  const auto all = ranks.gather(hex64(hash64(found + own.contents)));
  if (std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all[0]; })) return;
  const auto hosts = ranks.gather(host_name());
  refuse_difference(ranks.gather(found), hosts, {});
  if (!ranks.any(records(data, seed).contents != own.contents))
    return refuse_difference(ranks.gather(own.contents), hosts, ranks.gather(own.places));
  if (ranks.is_main())
    log_info("the data set gives other contents each time that a record is read; whether all ranks have the same data is not checked");
}

}  // namespace npu_train::detail
