#include "npu_train/tools/align/compare.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/tools/align/checkpoint_diff.hpp"
#include "npu_train/tools/align/rank_comparison.hpp"
#include "npu_train/tools/align/run_comparison.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct CompareArguments {
  std::string a, b, ranks;
  CompareOptions options;
  std::string reference, mapping, csv, html, json_file;
  std::string columns, columns_b;
  std::vector<std::string> tolerances;
  std::vector<std::string> given;  // names of the given options
  RunComparisonOptions runs;
  bool equal_names = false, json = false;
  int64_t rows = 20;
};

// Reads one pair "a: b" per line, as in msprobe's data_mapping.yaml; # begins a comment.
std::map<std::string, std::string> read_mapping(const std::string& path) {
  const auto node = load_yaml(path);
  check(node.is_map(), ErrorKind::Usage, "compare", path, ": not a mapping; each line must be 'name in A: name in B'");
  std::map<std::string, std::string> out;
  for (const auto& member : node.members()) {
    check(member.value.is_scalar(), ErrorKind::Usage, "compare", path, ": '", member.key,
          "' is mapped to no name; each line must be 'name in A: name in B'");
    out[member.key] = member.value.scalar();
  }
  return out;
}

// Parses "layer4.*=1e-4,1e-2".
std::pair<std::string, Tolerance> read_tolerance(const std::string& text) {
  const auto equal = text.rfind('='), comma = text.find(',', equal == std::string::npos ? 0 : equal);
  const auto number = [&](const std::string& part) {
    const auto value = decimal_number(part);
    check(value && *value >= 0, ErrorKind::Usage, "compare", "--tolerance ", text,
          ": allowed: PATTERN=ATOL,RTOL, for example layer4.*=1e-4,1e-2");
    return *value;
  };
  check(equal != std::string::npos && comma != std::string::npos, ErrorKind::Usage, "compare", "--tolerance ", text,
        ": allowed: PATTERN=ATOL,RTOL, for example layer4.*=1e-4,1e-2");
  return {text.substr(0, equal), {number(text.substr(equal + 1, comma - equal - 1)), number(text.substr(comma + 1))}};
}

// Writes the requested reports and returns the exit status, for every kind of comparison.
template <class Result>
int finish(const CompareArguments& args, const Result& result, bool agrees) {
  if constexpr (requires { to_csv(result); })
    if (!args.csv.empty()) write_file_atomic(args.csv, to_csv(result));
  if (!args.json_file.empty()) save_json(args.json_file, to_json(result));
  show(report_of(result), args.json, args.html, static_cast<size_t>(args.rows));
  return agrees ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

bool is_weights(const std::string& path) {
  const std::filesystem::path p(path);
  std::error_code error;
  if (std::filesystem::is_directory(p, error)) return std::filesystem::exists(p / "manifest.json", error) || p.filename() == "checkpoints";
  return is_safetensors_name(p) || is_pth_name(p);
}

// Kinds of a path's content. They are bits, since an option may apply to several kinds.
enum Kind : unsigned {
  kNone = 0,
  kDump = 1,
  kCheckpoint = 2,
  kRunFolder = 4,
  kHistory = 8,
  kConfig = 16,
  kEnvironment = 32,
  kMonitor = 64
};
constexpr unsigned kValues = kDump | kCheckpoint, kLogs = kRunFolder | kHistory;

struct KindName {
  Kind kind;
  const char *one, *many;
};
constexpr std::array<KindName, 7> kKinds = {{{kDump, "a dump", "dumps"},
                                             {kCheckpoint, "a checkpoint", "checkpoints"},
                                             {kRunFolder, "a run folder", "run folders"},
                                             {kHistory, "a loss history", "loss histories"},
                                             {kConfig, "a configuration", "configurations"},
                                             {kEnvironment, "an environment", "environments"},
                                             {kMonitor, "a monitor", "monitors"}}};

// The purpose of an option, and the kinds to which it applies. An option that is not listed applies to all kinds.
struct OptionUse {
  const char* name;
  unsigned kinds;
  const char* purpose;
  const char* needs = "";  // beginning of the name of another option that it requires
};
constexpr std::array<OptionUse, 21> kUses = {{
    {"--reference", kDump, "a third dump in fp32, with which both are compared"},
    {"--proportion", kDump, "how far A may be from the reference", "--reference"},
    {"--steps", kDump, "the steps to read"},
    {"--rank", kDump, "the rank to read"},
    {"--atol", kValues, "a tolerance of values"},
    {"--rtol", kValues, "a tolerance of values"},
    {"--tolerance", kValues, "a tolerance of the values of some layers"},
    {"--exact", kValues, "a tolerance of zero: equal bits"},
    {"--mapping", kValues, "names of layers"},
    {"--strict-names", kValues, "names of layers"},
    {"--strict", kDump, "values that cannot be judged"},
    {"--sample", kValues, "the fraction of layers to read"},
    {"--sample-elements", kDump, "the fraction of elements to read"},
    {"--seed", kValues, "the seed of --sample and --sample-elements", "--sample"},
    {"--layers", kValues, "the layers to read"},
    {"--columns", kLogs, "names of a log's columns"},
    {"--columns-b", kLogs, "names of a log's columns"},
    {"--shift", kLogs | kMonitor, "steps by which one log is behind the other"},
    {"--mean-rtol", kLogs | kMonitor, "the tolerance of losses and monitored norms"},
    {"--lr-rtol", kLogs, "the tolerance of learning rates"},
    {"--rows", kValues | kLogs | kMonitor, "lines of a table of layers or steps"},
}};

const KindName& name_of(Kind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& name) { return name.kind == kind; });
}

// Returns a list such as "dumps, checkpoints and run folders".
std::string many_of(unsigned kinds) {
  std::vector<std::string> out;
  for (const auto& name : kKinds)
    if ((kinds & name.kind) != 0) out.emplace_back(name.many);
  const auto last = out.back();
  out.pop_back();
  return out.empty() ? last : join(out) + " and " + last;
}

// Returns the checkpoint that a file belongs to; "" if there is none.
std::string checkpoint_around(const std::string& path) {
  const std::filesystem::path p(path);
  const bool part = p.filename() == "manifest.json" || p.filename() == "state.json";
  const auto folder = p.has_parent_path() ? p.parent_path() : std::filesystem::path(".");
  std::error_code error;
  return part && std::filesystem::exists(folder / "manifest.json", error) ? folder.string() : "";
}

Kind kind_of(const std::string& path) {
  if (is_dump(path)) return kDump;
  if (!dump_around(path).empty() || !checkpoint_around(path).empty()) return kNone;  // a stack.json of a dump is not a log
  if (is_weights(path)) return kCheckpoint;
  const auto text = kind_of_run_file(path);
  const auto found = std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& name) { return name.one == text; });
  return found == kKinds.end() ? kNone : found->kind;
}

// Returns the hint for a path of unknown kind.
std::string meant_instead(const std::string& path) {
  if (const auto dump = dump_around(path); !dump.empty()) return "; hint: it belongs to the dump " + dump.string() + ": give that folder";
  if (const auto whole = checkpoint_around(path); !whole.empty())
    return "; hint: it belongs to the checkpoint " + whole + ": give that folder";
  std::vector<std::string> inside;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end && inside.size() < 100; it.increment(error))
    if (const auto kind = it->is_directory(error) ? kind_of(it->path().string()) : kNone; kind != kNone)
      inside.push_back(it->path().string() + " (" + name_of(kind).one + ")");
  if (inside.empty())
    return "; allowed: a dump (with dump.json, or step<N>/rank<R>/dump.json), a run folder (with config.yaml), a checkpoint (with "
           "manifest.json), or a file: .csv, .json, "
           ".jsonl, .safetensors, .pth, .yaml";
  std::sort(inside.begin(), inside.end());
  constexpr size_t kShown = 4;
  const bool more = inside.size() > kShown;
  if (more) inside.resize(kShown);
  return "; hint: give one of its entries: " + join(inside) + (more ? " ..." : "");
}

// Returns the hint for two paths of different kinds.
std::string hint_for(Kind a, Kind b) {
  const unsigned both = a | b;
  if ((both & kRunFolder) == 0) return "";
  if ((both & kConfig) != 0) return "; hint: give the run folder's config.yaml";
  if ((both & kCheckpoint) != 0) return "; hint: give the run folder's checkpoints";
  if ((both & kEnvironment) != 0) return "; hint: give the run folder's environment.json";
  return "; hint: the dump of a run is in its folder dump, unless dump.dir names another one";
}

// Rejects options that do not apply, so that none is ignored silently.
void check_options_of(const CompareArguments& args, Kind kind) {
  std::vector<std::string> wrong;
  for (const auto& use : kUses) {
    const auto given = [&](const std::string& name) { return std::find(args.given.begin(), args.given.end(), name) != args.given.end(); };
    if (!given(use.name)) continue;
    if ((use.kinds & kind) == 0)
      wrong.push_back(std::string(use.name) + " applies only to " + many_of(use.kinds) + " (" + use.purpose + ")");
    else if (*use.needs != '\0' &&
             std::none_of(args.given.begin(), args.given.end(), [&](const auto& name) { return name.starts_with(use.needs); }))
      wrong.push_back(std::string(use.name) + " (" + use.purpose + ") requires " + use.needs);
  }
  const auto* hint = kind == kRunFolder || kind == kHistory ? "; hint: --mean-rtol and --lr-rtol are the tolerances of a history" : "";
  const bool tolerance = std::any_of(wrong.begin(), wrong.end(), [](const auto& text) { return text.find("a tolerance of") != text.npos; });
  check(wrong.empty(), ErrorKind::Usage, "compare", join(wrong, "; "), "; ", args.a, " and ", args.b, " are ", name_of(kind).many,
        tolerance ? hint : "");
}

// Returns the kind of both paths.
Kind common_kind(const CompareArguments& args) {
  std::error_code error;
  check(!args.a.empty() && !args.b.empty(), ErrorKind::Usage, "compare", args.a.empty() ? "A" : "B", " is empty; allowed: a path");
  for (const auto& path : {args.a, args.b, args.reference})
    check(path.empty() || std::filesystem::exists(path, error), ErrorKind::Data, "compare", path, ": no such file or folder");
  auto a = kind_of(args.a), b = kind_of(args.b);
  for (const auto& [path, kind] : {std::pair(args.a, a), std::pair(args.b, b)})
    check(kind != kNone, ErrorKind::Data, "compare", path, ": unknown kind of input", meant_instead(path));
  if ((a | b) == kLogs) a = b = kHistory;  // a log is compared with the log in the other side's run folder
  check(a == b, ErrorKind::Usage, "compare", args.a, " is ", name_of(a).one, ", ", args.b, " is ", name_of(b).one,
        "; allowed: two paths of the same kind", hint_for(a, b));
  check_options_of(args, a);
  const auto reference = args.reference.empty() ? kDump : kind_of(args.reference);
  check(reference == kDump, ErrorKind::Data, "compare", "--reference ", args.reference, " is ",
        reference == kNone ? "of an unknown kind" : name_of(reference).one, "; allowed: a dump",
        reference == kNone ? meant_instead(args.reference) : "");
  return a;
}

int compare(CompareArguments args, const Parts& parts) {
  if (!args.ranks.empty()) {
    check_writable({args.html, args.json_file});
    const auto result = compare_ranks(args.ranks, args.options.steps);
    return finish(args, result, result.agrees());
  }
  const auto kind = common_kind(args);
  check_writable({args.csv, args.html, args.json_file});
  auto& options = args.options;
  options.fuzzy = !args.equal_names;
  if (!options.rank.empty() && options.rank.find_first_not_of("0123456789") == std::string::npos) options.rank.insert(0, "rank");
  options.reference = args.reference;
  if (!args.mapping.empty()) options.mapping = read_mapping(args.mapping);
  for (const auto& text : args.tolerances) options.layer_tolerance.push_back(read_tolerance(text));
  if (kind == kDump) {
    const auto result = compare_dumps(args.a, args.b, options);
    const auto status = finish(args, result, result.agrees);
    return result.first.cause == Divergence::Cause::Unreadable ? static_cast<int>(ErrorKind::Data) : status;
  }
  if (kind == kCheckpoint) {
    const auto result = compare_checkpoints(args.a, args.b, options);
    return finish(args, result, result.agrees);
  }
  args.runs.complete_config = [&parts](const ConfigNode& config, std::string& why) { return comparable_config(config, why, parts); };
  args.runs.columns_a = parse_history_columns(args.columns);
  args.runs.columns_b = parse_history_columns(args.columns_b.empty() ? args.columns : args.columns_b);
  const auto result = compare_runs(args.a, args.b, args.runs);
  return finish(args, result, result.agrees());
}

}  // namespace

void add_compare(CLI::App& app, Command& run) {
  auto args = std::make_shared<CompareArguments>();
  auto* sub = app.add_subcommand("compare", "report whether two runs agree, and where they first differ");
  sub->add_option("A", args->a, "a dump (msprobe's too), run folder, history, monitor, checkpoint or configuration");
  sub->add_option("B", args->b, "the other one, of the same kind");
  auto* ranks = sub->add_option("--ranks", args->ranks, "in place of A and B: a dump of several ranks, which are compared with each other");
  sub->add_option("--reference", args->reference,
                  "a third dump, in fp32: a value fails only if its error is out of proportion to B's error");
  sub->add_option("--proportion", args->options.proportion,
                  "largest allowed ratio of A's error to B's error, both relative to the reference")
      ->capture_default_str();
  sub->add_option("--atol", args->options.atol, "absolute tolerance, for all dtypes")->check(zero_or_more());
  sub->add_option("--rtol", args->options.rtol, "relative tolerance, for all dtypes")->check(zero_or_more());
  sub->add_option("--tolerance", args->tolerances, "PATTERN=ATOL,RTOL for some layers; may be repeated");
  auto* exact = sub->add_flag("--exact", args->options.exact, "only equal bits agree");
  for (const char* tolerance : {"--atol", "--rtol", "--tolerance"}) exact->excludes(sub->get_option(tolerance));
  sub->add_option("--mapping", args->mapping, "YAML file with lines 'name in A: name in B', for layers or calls");
  sub->add_flag("--strict-names", args->equal_names, "match equal names only");
  sub->add_flag("--strict", args->options.strict, "values that cannot be judged count as different");
  sub->add_option("--steps", args->options.steps, "compare only these steps, as in 0,1")->delimiter(',');
  sub->add_option("--rank", args->options.rank, "compare only this rank, as in 0 or rank0");
  sub->add_option("--sample", args->options.sample, "fraction of the layers to read")->capture_default_str();
  sub->add_option("--sample-elements", args->options.sample_elements, "fraction of the elements to read of each large value of a dump")
      ->capture_default_str();
  sub->add_option("--seed", args->options.seed, "seed of the samples")->capture_default_str();
  sub->add_option("--layers", args->options.layers, "last | sensitive | PATTERN");
  sub->add_option("--columns", args->columns, "names of a history's columns: step=iter,loss=train_loss,lr=learning_rate");
  sub->add_option("--columns-b", args->columns_b, "names of B's columns, if they differ");
  sub->add_option("--shift", args->runs.history.shift, "steps by which B's numbers are behind A's")->capture_default_str();
  sub->add_option("--mean-rtol", args->runs.history.mean_rtol, "largest allowed mean relative difference of the losses")
      ->check(above_zero())
      ->capture_default_str();
  sub->add_option("--lr-rtol", args->runs.history.lr_rtol, "largest allowed relative difference of a learning rate")
      ->check(above_zero())
      ->capture_default_str();
  sub->add_option("--rows", args->rows, "rows of the table on the terminal; 0: all")->check(zero_or_more())->capture_default_str();
  sub->add_option("--csv", args->csv, "write a CSV table with msprobe's columns");
  sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_option("--out", args->json_file, "write the JSON document to a file");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  for (auto* option : sub->get_options())
    if (!std::set<std::string>{"--help", "--ranks", "--steps", "--rows", "--html", "--out", "--json"}.contains(option->get_name()))
      ranks->excludes(option);
  sub->callback([args, sub, ranks, &run] {
    for (const char* name : {"A", "B"})
      if (ranks->count() == 0 && sub->count(name) == 0) throw CLI::RequiredError(name);
    for (const auto& use : kUses)
      if (sub->count(use.name) > 0) args->given.emplace_back(use.name);
    run = [args](const Parts& parts) { return compare(*args, parts); };
  });
}

}  // namespace npu_train::cli
