#include "tools/align/rank_notes.hpp"

#include <concepts>
#include <type_traits>
#include <utility>

namespace npu_train::detail {
namespace {

template <class S, class T>
concept Is = std::same_as<std::remove_const_t<S>, T>;

// List the members of each struct with their names in the file, both for writing and for reading.
void for_each_field(Is<Spread> auto& s, auto&& fn) {
  fn("count", s.count);
  fn("mean", s.mean);
  fn("variance", s.variance);
}

void for_each_field(Is<RankBatch> auto& b, auto&& fn) {
  fn("ids", b.ids);
  fn("contents", b.contents);
  fn("means", b.means);
  fn("deviations", b.deviations);
  fn("loss", b.loss);
}

void for_each_field(Is<RankParameter> auto& p, auto&& fn) {
  fn("name", p.name);
  fn("numel", p.numel);
  fn("dtype", p.dtype);
  fn("passes", p.passes);
  fn("local_square", p.local_square);
  fn("local_sum", p.local_sum);
  fn("reduced_norm", p.reduced_norm);
  fn("reduced_sum", p.reduced_sum);
  fn("before", p.before);
  fn("reduced", p.reduced);
  fn("clipped", p.clipped);
  fn("after", p.after);
}

void for_each_field(Is<RankNotes> auto& n, auto&& fn) {
  fn("step", n.step);
  fn("rank", n.rank);
  fn("ranks", n.ranks);
  fn("host", n.host);
  fn("version", n.version);
  fn("cpu", n.cpu);
  fn("threads", n.threads);
  fn("portable", n.portable);
  fn("seed", n.seed);
  fn("batches", n.batches);
  fn("known_sums", n.known_sums);
  fn("summed", n.summed);
  fn("norm", n.norm);
  fn("clipped_norm", n.clipped_norm);
  fn("lr", n.lr);
  fn("loss_scale", n.loss_scale);
  fn("taken", n.taken);
  fn("parameters", n.parameters);
}

template <class T>
Json written(const std::vector<T>& values);

template <class T>
Json written(const T& value) {
  if constexpr (std::constructible_from<Json, const T&>) {
    return Json(value);
  } else {
    auto out = Json::object();
    for_each_field(value, [&](const char* key, const auto& field) { out.set(key, written(field)); });
    return out;
  }
}

template <class T>
Json written(const std::vector<T>& values) {
  auto out = Json::array();
  for (const auto& value : values) out.push_back(written(value));
  return out;
}

void read(const Json& json, const std::string& file, std::string& out) { out = json.text(file); }
void read(const Json& json, const std::string& file, bool& out) { out = json.boolean(file); }
void read(const Json& json, const std::string& file, double& out) { out = json.number(file); }
void read(const Json& json, const std::string& file, int64_t& out) { out = json.integer(file); }
void read(const Json& json, const std::string& file, int& out) { out = static_cast<int>(json.integer(file)); }

template <class T>
void read(const Json& json, const std::string& file, std::vector<T>& out);

template <class T>
void read(const Json& json, const std::string& file, T& out) {
  for_each_field(out, [&](const char* key, auto& field) { read(json.at(key, file), file, field); });
}

template <class T>
void read(const Json& json, const std::string& file, std::vector<T>& out) {
  for (const auto& item : json.items(file)) read(item, file, out.emplace_back());
}

}  // namespace

Json to_json(const RankNotes& notes) { return written(notes); }

RankNotes read_rank_notes(const std::filesystem::path& path) {
  RankNotes out;
  read(load_json(path), path.string(), out);
  return out;
}

}  // namespace npu_train::detail
