#include "npu_train/tools/plan/measured.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"

namespace npu_train {
namespace {

const std::vector<std::string> kNeeded = {"ranks", "link", "strategy", "seconds"};
const std::vector<std::string> kColumns = {"ranks",   "link",  "strategy",      "seconds", "shard_size",
                                           "options", "batch", "micro_batches", "load",    "use"};

constexpr double kMost = 1e6;  // upper limit of ranks, samples and seconds
constexpr double kMostMicroBatches = 1e4;
constexpr size_t kMostRows = 1000;

// One row; all its errors name file, line and column.
class Row {
 public:
  Row(const CsvTable& table, size_t row) : table_(table), row_(row), where_(str_cat(table.source, ":", table.lines[row])) {}
  const std::string& where() const { return where_; }
  std::string text(const char* column) const { return table_.has(column) ? table_.rows[row_][table_.index(column)] : std::string(); }
  double number(const char* column, double least, double otherwise, double most = kMost) const {
    const auto given = text(column);
    if (given.empty()) return otherwise;
    const auto value = table_.numbers(column)[row_];
    check(std::isfinite(value) && value >= least && value <= most, ErrorKind::Data, where_.c_str(), column, " is ", given,
          "; allowed: ", least, " to ", most);
    return value;
  }
  int64_t integer(const char* column, int64_t otherwise, double most = kMost) const {
    const double value = number(column, 1, static_cast<double>(otherwise), most);
    check(value == std::floor(value), ErrorKind::Data, where_.c_str(), column, " is ", text(column), "; allowed: integers");
    return static_cast<int64_t>(value);
  }

 private:
  const CsvTable& table_;
  size_t row_;
  std::string where_;
};

MeasuredStep step_of(const Row& row) {
  const auto& where = row.where();
  for (const auto& column : kNeeded) check(!row.text(column.c_str()).empty(), ErrorKind::Data, where.c_str(), column, " is missing");
  MeasuredStep out{.placement = {.strategy = row.text("strategy"), .ranks = static_cast<int>(row.integer("ranks", 1))},
                   .link_text = row.text("link"),
                   .options = row.text("options"),
                   .batch = row.integer("batch", 0),
                   .micro_batches = row.integer("micro_batches", 0, kMostMicroBatches),
                   .load = row.number("load", 0, 0),
                   .seconds = row.number("seconds", 0, 0)};
  out.link = link_of(where.c_str(), out.link_text);
  check(out.seconds > 0, ErrorKind::Data, where.c_str(), "seconds is ", row.text("seconds"), "; allowed: numbers above 0");
  out.placement.shard_size = static_cast<int>(row.integer("shard_size", 0));
  if (out.placement.ranks == 1) out.placement.strategy = "single";
  const auto use = row.text("use");
  check(use.empty() || use == "fit" || use == "check", ErrorKind::Data, where.c_str(), "use is '", use, "'; allowed: fit, check");
  out.is_check = use == "check";
  return out;
}

}  // namespace

StepWork MeasuredStep::work_of(const StepWork& base) const {
  auto out = base;
  if (batch > 0) out.batch = batch;
  if (micro_batches > 0) out.micro_batches = micro_batches;
  if (options.empty()) return out;
  auto node = ConfigNode::map();
  node.set("dist", to_node(base.dist));
  std::istringstream words(options);
  for (std::string word; words >> word;) {
    check(word.starts_with("dist."), ErrorKind::Data, "plan", "'", word, "' in the options of a measured step; allowed: dist.KEY=VALUE");
    apply_override(node, word);
  }
  out.dist = bind<DistOptions>(*node.find("dist"), "dist");
  return out;
}

Placement MeasuredStep::placement_of(const StepWork& base) const {
  auto out = placement;
  if (out.ranks > 1) out.group_size = group_size_of(work_of(base).dist, out.ranks, cluster().per_machine);
  return out;
}

std::string MeasuredStep::name() const {
  std::string out = std::to_string(placement.ranks) + (placement.ranks == 1 ? " rank" : " ranks");
  if (placement.ranks > 1) out += ", " + link_text + ", " + placement.strategy;
  if (placement.shard_size > 0) out += " by " + std::to_string(placement.shard_size);
  if (micro_batches > 1) out += ", " + std::to_string(micro_batches) + " micro-batches";
  return options.empty() ? out : out + ", " + options;
}

std::vector<MeasuredStep> read_measured(const std::filesystem::path& path) {
  const auto table = read_csv(path, {.bytes = 4 << 20, .cells = 100'000});
  for (const auto& column : table.columns)
    check(std::find(kColumns.begin(), kColumns.end(), column) != kColumns.end(), ErrorKind::Data, table.source.c_str(), "the column '",
          column, "' is not known; allowed: ", join(kColumns));
  for (const auto& column : kNeeded)
    check(table.has(column), ErrorKind::Data, table.source.c_str(), "there is no column '", column, "'; needed: ", join(kNeeded));
  check(table.rows.size() <= kMostRows, ErrorKind::Data, table.source.c_str(), "there are ", table.rows.size(),
        " measured steps; allowed: at most ", kMostRows);
  std::vector<MeasuredStep> out;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    auto step = step_of(Row(table, i));
    const auto same = std::find_if(out.begin(), out.end(), [&](const MeasuredStep& other) {
      return other.name() == step.name() && other.batch == step.batch && other.load == step.load && other.is_check == step.is_check;
    });
    if (same == out.end())
      out.push_back(std::move(step));
    else
      same->seconds = std::min(same->seconds, step.seconds);
  }
  check(!out.empty(), ErrorKind::Data, table.source.c_str(), "there is no measured step");
  return out;
}

std::string beyond_measured(const StepWork& work, const std::vector<MeasuredStep>& steps, const Placement& placement,
                            const LinkSpeed& link) {
  int fewest = placement.ranks, most = 0;
  double slowest = INFINITY, fastest = 0;
  bool has_groups = false;
  std::set<std::string> strategies;
  for (const auto& step : steps) {
    fewest = std::min(fewest, step.placement.ranks);
    most = std::max(most, step.placement.ranks);
    strategies.insert(step.placement.strategy);
    has_groups |= step.placement_of(work).group_size > 0;
    if (step.placement.ranks == 1) continue;
    slowest = std::min(slowest, step.link.bytes_per_second);
    fastest = std::max(fastest, step.link.bytes_per_second);
  }
  std::vector<std::string> out;
  if (placement.ranks > most) out.push_back("more than " + std::to_string(most) + (most == 1 ? " rank" : " ranks"));
  if (placement.ranks > 1 && fastest > 0 && link.bytes_per_second > fastest) out.push_back("a link above " + rate_text(fastest));
  if (placement.ranks > 1 && fastest > 0 && link.bytes_per_second < slowest) out.push_back("a link below " + rate_text(slowest));
  if (!strategies.contains(placement.strategy)) out.push_back(placement.strategy);
  if (placement.group_size > 0 && !has_groups) out.push_back("groups of ranks");
  return join(out);
}

}  // namespace npu_train
