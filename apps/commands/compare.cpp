#include "npu_train/align/compare.hpp"

#include "../cli.hpp"
#include "commands.hpp"
#include "npu_train/align/checkpoint_diff.hpp"
#include "npu_train/align/compare_report.hpp"
#include "npu_train/align/run_comparison.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::cli {
namespace {

struct CompareArguments {
  std::string a, b;
  CompareOptions options;
  std::string reference, mapping, csv, html, json_file;
  std::string columns, columns_b;
  std::vector<std::string> tolerances;
  std::vector<std::string> of_values;  // options that were given and mean values of dumps and checkpoints
  RunComparisonOptions runs;
  bool strict = false, json = false;
  int64_t rows = 20;
};

// "a: b", one a line, as msprobe's data_mapping.yaml; # begins a comment.
std::map<std::string, std::string> read_mapping(const std::string& path) {
  const auto node = load_yaml(path);
  check(node.is_map(), ErrorKind::Usage, "compare", path, ": not a mapping; a line of it is 'name in A: name in B'");
  std::map<std::string, std::string> out;
  for (const auto& member : node.members()) {
    check(member.value.is_scalar(), ErrorKind::Usage, "compare", path, ": '", member.key, "' is mapped to no name");
    out[member.key] = member.value.scalar();
  }
  return out;
}

// "layer4.*=1e-4,1e-2".
std::pair<std::string, Tolerance> read_tolerance(const std::string& text) {
  const auto equal = text.rfind('='), comma = text.find(',', equal == std::string::npos ? 0 : equal);
  const auto number = [&](const std::string& part) {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    check(!part.empty() && end == part.c_str() + part.size() && value >= 0, ErrorKind::Usage, "compare", "--tolerance ", text,
          ": allowed: PATTERN=ATOL,RTOL, as layer4.*=1e-4,1e-2");
    return value;
  };
  check(equal != std::string::npos && comma != std::string::npos, ErrorKind::Usage, "compare", "--tolerance ", text,
        ": allowed: PATTERN=ATOL,RTOL, as layer4.*=1e-4,1e-2");
  return {text.substr(0, equal), {number(text.substr(equal + 1, comma - equal - 1)), number(text.substr(comma + 1))}};
}

// Writes what was asked for and gives the exit status; one for every kind of comparison.
template <class Result>
int finish(const CompareArguments& args, const Result& result, bool agrees) {
  if (!args.csv.empty()) write_file_atomic(args.csv, to_csv(result));
  if (!args.html.empty()) write_file_atomic(args.html, to_html(result));
  if (!args.json_file.empty()) save_json(args.json_file, to_json(result));
  print(args.json, args.json ? to_json(result) : Json(),
        args.json ? "" : to_text(result, static_cast<size_t>(args.rows), terminal_columns()));
  return agrees ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

bool is_weights(const std::string& path) {
  const std::filesystem::path p(path);
  const auto extension = to_lower(p.extension().string());
  std::error_code error;
  if (std::filesystem::is_directory(p, error)) return std::filesystem::exists(p / "manifest.json", error) || p.filename() == "checkpoints";
  return extension == ".safetensors" || extension == ".pth" || extension == ".pt" || extension == ".bin" || extension == ".ckpt";
}

constexpr const char* kUnknown = "of no kind that is known";

// "a dump"; "" for what is not there.
std::string kind_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "";
  if (is_dump(path)) return "a dump";
  if (is_weights(path)) return "a checkpoint";
  const auto kind = kind_of_run_file(path);
  return kind.empty() ? kUnknown : kind;
}

void check_kinds(const CompareArguments& args) {
  const auto a = kind_of(args.a), b = kind_of(args.b);
  for (const auto& path : {args.a, args.b, args.reference})
    check(path.empty() || !kind_of(path).empty(), ErrorKind::Data, "compare", path, ": there is no such file or folder");
  for (const auto& path : {args.a, args.b})
    check(kind_of(path) != kUnknown, ErrorKind::Data, "compare", path, ": of no kind that is known; a dump has dump.json in it or in ",
          "step<N>/rank<R>, a run folder config.yaml, a checkpoint manifest.json; files: .csv, .json, .jsonl, .safetensors, .pth, .yaml");
  check(a == b, ErrorKind::Usage, "compare", args.a, " is ", a, ", ", args.b, " is ", b, "; allowed: two of a kind");
  const bool for_dumps = !args.reference.empty() || !args.options.steps.empty() || !args.options.rank.empty();
  check(!for_dumps || a != b || a == "a dump", ErrorKind::Usage, "compare", "--reference, --steps and --rank are of dumps; ", args.a,
        " is ", a);
  check(args.of_values.empty() || a != b || a == "a dump" || a == "a checkpoint", ErrorKind::Usage, "compare", join(args.of_values),
        args.of_values.size() == 1 ? " is" : " are", " of dumps and checkpoints; ", args.a, " is ", a,
        a == "a loss history" || a == "a run folder" ? "; hint: --mean-rtol and --lr-rtol are the tolerances of a history" : "");
}

int compare(CompareArguments args) {
  check_kinds(args);
  auto& options = args.options;
  options.fuzzy = !args.strict;
  options.reference = args.reference;
  if (!args.mapping.empty()) options.mapping = read_mapping(args.mapping);
  for (const auto& text : args.tolerances) options.layer_tolerance.push_back(read_tolerance(text));
  if (is_dump(args.a) && is_dump(args.b)) {
    const auto result = compare_dumps(args.a, args.b, options);
    const auto status = finish(args, result, result.agrees);
    return result.first.cause == Divergence::Cause::Unreadable ? static_cast<int>(ErrorKind::Data) : status;
  }
  if (is_weights(args.a) && is_weights(args.b)) {
    const auto result = compare_checkpoints(args.a, args.b, options);
    return finish(args, result, result.agrees);
  }
  args.runs.columns_a = parse_history_columns(args.columns);
  args.runs.columns_b = parse_history_columns(args.columns_b.empty() ? args.columns : args.columns_b);
  const auto result = compare_runs(args.a, args.b, args.runs);
  return finish(args, result, result.agrees());
}

}  // namespace

void add_compare(CLI::App& app, Command& run) {
  auto args = std::make_shared<CompareArguments>();
  auto* sub = app.add_subcommand("compare", "tell whether two runs agree, and where they part");
  sub->add_option("A", args->a, "a dump (msprobe's too), run folder, history, checkpoint or configuration")->required();
  sub->add_option("B", args->b, "the other one, of the same kind")->required();
  sub->add_option("--reference", args->reference, "a third dump, of fp32: a value fails only out of proportion to B's own error");
  sub->add_option("--proportion", args->options.proportion, "times B's error to the reference that A's may be")->capture_default_str();
  sub->add_option("--atol", args->options.atol, "absolute tolerance, of all dtypes")->check(CLI::NonNegativeNumber);
  sub->add_option("--rtol", args->options.rtol, "relative tolerance, of all dtypes")->check(CLI::NonNegativeNumber);
  sub->add_option("--tolerance", args->tolerances, "PATTERN=ATOL,RTOL for some layers; may be repeated");
  sub->add_flag("--exact", args->options.exact, "only equal bits agree");
  sub->add_option("--mapping", args->mapping, "YAML of 'name in A: name in B', layers or calls");
  sub->add_flag("--strict-names", args->strict, "match equal names only");
  sub->add_option("--steps", args->options.steps, "only these")->delimiter(',');
  sub->add_option("--rank", args->options.rank, "only this, as rank0");
  sub->add_option("--sample", args->options.sample, "share of the calls that is read")->capture_default_str();
  sub->add_option("--seed", args->options.seed, "of the sample")->capture_default_str();
  sub->add_option("--layers", args->options.layers, "last | sensitive | PATTERN");
  sub->add_option("--columns", args->columns, "of a history: step=iter,loss=train_loss,lr=learning_rate");
  sub->add_option("--columns-b", args->columns_b, "of B, where it has other names");
  sub->add_option("--shift", args->runs.history.shift, "steps that B's numbers are behind A's")->capture_default_str();
  sub->add_option("--mean-rtol", args->runs.history.mean_rtol, "mean relative difference of losses that is allowed")->capture_default_str();
  sub->add_option("--lr-rtol", args->runs.history.lr_rtol, "relative difference of a learning rate that is allowed")->capture_default_str();
  sub->add_option("--rows", args->rows, "of the table on the terminal; 0: all")->check(CLI::NonNegativeNumber)->capture_default_str();
  sub->add_option("--csv", args->csv, "write a table with msprobe's columns");
  sub->add_option("--html", args->html, "write a self-contained page");
  sub->add_option("--out", args->json_file, "write the JSON document to a file");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, sub, &run] {
    for (const char* name : {"--exact", "--atol", "--rtol", "--tolerance", "--mapping", "--strict-names", "--sample", "--layers"})
      if (sub->count(name) > 0) args->of_values.emplace_back(name);
    run = [args] { return compare(*args); };
  });
}

}  // namespace npu_train::cli
