#include "tools/align/rank_notes.hpp"

#include <utility>

namespace npu_train::detail {
namespace {

template <class T>
Json list_of(const std::vector<T>& values) {
  auto out = Json::array();
  for (const auto& value : values) out.push_back(Json(value));
  return out;
}

Json to_json(const Spread& spread) { return Json::object({{"count", spread.count}, {"mean", spread.mean}, {"variance", spread.variance}}); }

Json to_json(const RankBatch& batch) {
  return Json::object({{"ids", list_of(batch.ids)},
                       {"contents", list_of(batch.contents)},
                       {"means", to_json(batch.means)},
                       {"deviations", to_json(batch.deviations)},
                       {"loss", batch.loss}});
}

Json to_json(const RankParameter& p) {
  return Json::object({{"name", p.name},
                       {"numel", p.numel},
                       {"dtype", p.dtype},
                       {"passes", p.passes},
                       {"local_square", p.local_square},
                       {"local_sum", p.local_sum},
                       {"reduced_norm", p.reduced_norm},
                       {"reduced_sum", p.reduced_sum},
                       {"before", p.before},
                       {"reduced", p.reduced},
                       {"clipped", p.clipped},
                       {"after", p.after}});
}

// Reads members of one object of a file.
class Members {
 public:
  Members(const Json& json, const std::string& file) : json_(json), file_(file) {}

  std::string text(const char* key) const { return json_.at(key, file_).text(file_); }
  int64_t integer(const char* key) const { return json_.at(key, file_).integer(file_); }
  double number(const char* key) const { return json_.at(key, file_).number(file_); }
  bool boolean(const char* key) const { return json_.at(key, file_).boolean(file_); }
  template <class Fn>
  void each(const char* key, Fn&& fn) const {
    for (const auto& item : json_.at(key, file_).items(file_)) fn(item);
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> out;
    each(key, [&](const Json& item) { out.push_back(item.number(file_)); });
    return out;
  }
  Members of(const char* key) const { return {json_.at(key, file_), file_}; }

 private:
  const Json& json_;
  const std::string& file_;
};

Spread spread_of(const Members& in) { return {in.integer("count"), in.number("mean"), in.number("variance")}; }

RankBatch batch_of(const Members& in, const std::string& file) {
  RankBatch out;
  in.each("ids", [&](const Json& id) { out.ids.push_back(id.integer(file)); });
  in.each("contents", [&](const Json& content) { out.contents.push_back(content.text(file)); });
  out.means = spread_of(in.of("means"));
  out.deviations = spread_of(in.of("deviations"));
  out.loss = in.number("loss");
  return out;
}

RankParameter parameter_of(const Members& in) {
  RankParameter out;
  out.name = in.text("name");
  out.numel = in.integer("numel");
  out.dtype = in.text("dtype");
  out.passes = in.integer("passes");
  out.local_square = in.number("local_square");
  out.local_sum = in.number("local_sum");
  out.reduced_norm = in.number("reduced_norm");
  out.reduced_sum = in.number("reduced_sum");
  out.before = in.text("before");
  out.reduced = in.text("reduced");
  out.clipped = in.text("clipped");
  out.after = in.text("after");
  return out;
}

}  // namespace

Json to_json(const RankNotes& n) {
  auto batches = Json::array(), parameters = Json::array();
  for (const auto& batch : n.batches) batches.push_back(to_json(batch));
  for (const auto& p : n.parameters) parameters.push_back(to_json(p));
  return Json::object({{"step", n.step},
                       {"rank", n.rank},
                       {"ranks", n.ranks},
                       {"host", n.host},
                       {"version", n.version},
                       {"cpu", n.cpu},
                       {"threads", n.threads},
                       {"portable", n.portable},
                       {"seed", n.seed},
                       {"batches", std::move(batches)},
                       {"known_sums", list_of(n.known_sums)},
                       {"summed", list_of(n.summed)},
                       {"norm", n.norm},
                       {"clipped_norm", n.clipped_norm},
                       {"lr", n.lr},
                       {"loss_scale", n.loss_scale},
                       {"taken", n.taken},
                       {"parameters", std::move(parameters)}});
}

RankNotes read_rank_notes(const std::filesystem::path& path) {
  const auto file = path.string();
  const auto json = load_json(path);
  const Members in(json, file);
  RankNotes out;
  out.step = in.integer("step");
  out.rank = static_cast<int>(in.integer("rank"));
  out.ranks = static_cast<int>(in.integer("ranks"));
  out.host = in.text("host");
  out.version = in.text("version");
  out.cpu = in.text("cpu");
  out.threads = in.integer("threads");
  out.portable = in.boolean("portable");
  out.seed = in.text("seed");
  in.each("batches", [&](const Json& batch) { out.batches.push_back(batch_of({batch, file}, file)); });
  out.known_sums = in.numbers("known_sums");
  out.summed = in.numbers("summed");
  out.norm = in.number("norm");
  out.clipped_norm = in.number("clipped_norm");
  out.lr = in.number("lr");
  out.loss_scale = in.number("loss_scale");
  out.taken = in.boolean("taken");
  in.each("parameters", [&](const Json& p) { out.parameters.push_back(parameter_of({p, file})); });
  return out;
}

}  // namespace npu_train::detail
