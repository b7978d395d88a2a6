#include "npu_train/tools/probe/data_check.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "tools/probe/each_sample.hpp"

namespace npu_train {

DataCheck check_data(const RunConfig& config, const Parts& parts, const std::function<void(int64_t, int64_t)>& progress) {
  return translated("data check", [&] {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()));
    const auto pair = parts.datasets.make(config.data, "data", parts.transforms);
    auto found = detail::count_samples(pair, /*pipeline=*/nullptr, /*seed=*/0, progress);
    return DataCheck{.summary = std::move(found.summary),
                     .train = found.train,
                     .val = found.val,
                     .classes = std::move(found.classes),
                     .bad = std::move(found.bad)};
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
  out.data({{"passed", check.passed()}});
  return out;
}

}  // namespace npu_train
