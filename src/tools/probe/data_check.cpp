#include "npu_train/tools/probe/data_check.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/sample_choice.hpp"
#include "tools/probe/each_sample.hpp"

namespace npu_train {

DataCheck check_data(const RunConfig& config, const Parts& parts, const std::function<void(int64_t, int64_t)>& progress) {
  return translated("data check", [&] {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()));
    const auto pair = parts.datasets.make(config.data, "data", parts.transforms);
    detail::sample_choice(pair);  // also reads sampler_file, to report its errors
    auto found = detail::count_samples(pair, /*pipeline=*/nullptr, /*seed=*/0, progress);
    return DataCheck{.summary = std::move(found.summary),
                     .train = found.train,
                     .val = found.val,
                     .classes = std::move(found.classes),
                     .bad = std::move(found.bad),
                     .repeated = std::move(found.repeated)};
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

namespace {

/// Reports how many samples are copies, and lists the groups.
void tell_repeated(const DataCheck& check, Report& out) {
  int64_t copies = 0, in_both = 0;
  ReportTable groups{.layout = ReportTable::Layout::List};
  for (const auto& group : check.repeated) {
    copies += static_cast<int64_t>(group.size()) - 1;
    in_both += group.front().split != group.back().split ? 1 : 0;
    Json samples = Json::array();
    std::vector<std::string> words;
    const auto& first = group.front();
    for (const auto& one : group) {
      samples.push_back(Json::object({{"split", one.split}, {"index", one.index}, {"place", one.place}}));
      if (&one != &first) words.push_back(str_cat(one.split, " ", one.index, one.place.empty() ? "" : " (" + one.place + ")"));
    }
    groups.add({data("samples", std::move(samples)), shown("split", first.split), shown("index", std::to_string(first.index)),
                shown("content", (first.place.empty() ? "" : first.place + " ") + "= " + join(words, " = "))});
  }
  if (copies > 0)
    out.say(str_cat(with_commas(copies), copies == 1 ? " sample has" : " samples have", " the content of another one",
                    in_both > 0 ? "; " + with_commas(in_both) + " in both train and val, so the validation knows the answers" : "", ":"),
            Tone::Warn);
  out.table("repeated", std::move(groups));
}

}  // namespace

Report report_of(const DataCheck& check) {
  Report out("Check of the data", Json::object({{"summary", check.summary}, {"train", check.train}, {"val", check.val}}));
  out.say("data: " + check.summary);
  ReportTable classes;
  for (const auto& c : check.classes) classes.add({both("class", c.name), both("train", c.train), both("val", c.val)});
  out.table("classes", std::move(classes));
  if (check.train + check.val == 0)
    out.verdict("there are no samples", Tone::Bad);
  else if (check.passed())
    out.verdict("every sample can be read", Tone::Good);
  else
    out.verdict(
        with_commas(static_cast<int64_t>(check.bad.size())) + " of " + with_commas(check.train + check.val) + " samples cannot be read:",
        Tone::Bad);
  out.table("bad", table_of_bad_samples(check.bad));
  const bool archives = std::any_of(check.bad.begin(), check.bad.end(), [](const auto& b) { return b.message.starts_with("[tar]"); });
  if (!check.bad.empty())
    out.remarks("hint", {archives ? "repair or remove them; data.on_bad_sample=skip omits samples, but not damaged archives"
                                  : "repair or remove them, or train with data.on_bad_sample=skip"});
  tell_repeated(check, out);
  out.data({{"passed", check.passed()}});
  return out;
}

}  // namespace npu_train
