// Converts the results of dist_probe.cpp to findings, tables and JSON.
#include <algorithm>
#include <map>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/probe/dist_probe.hpp"

namespace npu_train {
namespace {

constexpr double kMega = 1e6;

double mb_per_s(const CollectiveSpeed& speed) { return speed.seconds > 0 ? static_cast<double>(speed.bytes) / speed.seconds / kMega : 0; }

std::string ranks_of(const DistProbe& world) { return std::to_string(world.ranks) + (world.ranks == 1 ? " rank" : " ranks"); }

Finding judge(const DistProbe& world) {
  Finding out{"collectives",
              ranks_of(world),
              Verdict::Ok,
              {},
              world.ranks == 1 ? "one process, which sends nothing" : "Gloo, tensors in host memory; each value was compared on each rank"};
  std::vector<std::string> problems;
  for (const auto& check : world.checks)
    if (!check.problem.empty()) problems.push_back(check.collective + " of " + check.dtype + ": " + check.problem);
  const auto works = std::to_string(world.checks.size() - problems.size()) + " of " + std::to_string(world.checks.size());
  out.finding = works + " combinations of collective and dtype give the right values";
  if (world.ok()) return out;
  out.verdict = Verdict::Fail;
  constexpr size_t kShown = 3;
  if (!problems.empty()) {
    out.finding += "; " + detail::first_few(problems, kShown);
    out.fix = "train with other dtypes, or with the numbers of ranks that work";
  }
  if (!world.failure.empty()) {
    out.finding = world.failure;
    out.fix = "the log of the named rank shows the cause: start it alone, as in npu_tool doctor --dist --nproc " +
              std::to_string(world.ranks) + "; memory, a firewall on the loopback interface and limits of processes are usual causes";
  }
  return out;
}

}  // namespace

std::vector<Finding> judge_collectives(const std::vector<DistProbe>& worlds) {
  std::vector<Finding> out;
  for (const auto& world : worlds) out.push_back(judge(world));
  return out;
}

void add_collectives(Report& out, const std::vector<DistProbe>& worlds) {
  std::vector<std::string> collectives, dtypes;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> works;
  std::set<int64_t> sizes;
  const auto add_once = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  auto documents = Json::array();
  for (const auto& world : worlds) {
    documents.push_back(to_json(world));
    for (const auto& speed : world.speeds) sizes.insert(speed.bytes);
    for (const auto& check : world.checks) {
      add_once(collectives, check.collective);
      add_once(dtypes, check.dtype);
      auto& cell = works[{check.dtype, check.collective}];
      if (check.problem.empty()) cell.push_back(std::to_string(world.ranks));
    }
  }
  out.data({{"worlds", std::move(documents)}});
  ReportTable ranks{.title = "numbers of ranks at which a collective gives the right values"};
  for (const auto& dtype : dtypes) {
    std::vector<ReportField> row{shown("dtype", dtype)};
    for (const auto& collective : collectives) {
      const auto found = works.find({dtype, collective});
      row.push_back(shown(collective, found == works.end() ? "-" : found->second.empty() ? "never" : join(found->second, " ")));
    }
    ranks.add(std::move(row));
  }
  out.table("", std::move(ranks));
  ReportTable speeds{.title = "time of a small tensor, and bytes of the tensor per second, of the slowest rank"};
  for (const auto& collective : collectives)
    for (const auto& world : worlds) {
      std::vector<ReportField> row{shown("collective", collective), shown("ranks", world.ranks)};
      for (const auto& speed : world.speeds) {
        const bool smallest = speed.bytes == *sizes.begin();
        if (speed.collective == collective)
          row.push_back(shown(human_bytes(static_cast<double>(speed.bytes)) + (smallest ? ", us" : ", MB/s"),
                              number_value(smallest ? speed.seconds * kMega : mb_per_s(speed), 3)));
      }
      if (row.size() == sizes.size() + 2 && !sizes.empty()) speeds.add(std::move(row));
    }
  out.table("", std::move(speeds));
}

Json to_json(const DistProbe& probe) {
  Json checks = Json::array(), speeds = Json::array();
  for (const auto& c : probe.checks)
    checks.push_back(Json::object({{"collective", c.collective}, {"dtype", c.dtype}, {"ok", c.problem.empty()}, {"problem", c.problem}}));
  for (const auto& s : probe.speeds)
    speeds.push_back(
        Json::object({{"collective", s.collective}, {"bytes", s.bytes}, {"us", s.seconds * kMega}, {"mb_per_s", mb_per_s(s)}}));
  return Json::object({{"ranks", probe.ranks}, {"failure", probe.failure}, {"collectives", checks}, {"speeds", speeds}});
}

DistProbe dist_probe_from(const Json& json, const std::string& source) {
  DistProbe out{.ranks = static_cast<int>(json.at("ranks", source).integer(source)), .failure = json.at("failure", source).text(source)};
  for (const auto& c : json.at("collectives", source).items(source))
    out.checks.push_back(
        {c.at("collective", source).text(source), c.at("dtype", source).text(source), c.at("problem", source).text(source)});
  for (const auto& s : json.at("speeds", source).items(source))
    out.speeds.push_back(
        {s.at("collective", source).text(source), s.at("bytes", source).integer(source), s.at("us", source).number(source) / kMega});
  return out;
}

}  // namespace npu_train
