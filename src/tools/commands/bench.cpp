#include "npu_train/tools/bench/bench_cards.hpp"
#include "npu_train/tools/bench/bench_run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "bench_dist.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/io/file.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> words, compare, history, cards;
  std::string model, precision, device, out, csv, html, figures;
  std::vector<int> nproc;  // world sizes for section dist; empty: default_worlds()
  std::string rank_report;
  bool elsewhere = false;
  int64_t image = 0, num_classes = 0, threads = 0, seeds = 5;
  BenchOptions options;
  bool json = false;
};

/// Whether a model with these options, including defaults, reads token ids.
bool takes_tokens(const PartConfig& model) { return model.options.find("vocab_size") != nullptr; }

/// Sets data for sections that read them, if the configuration names none: generated images of the model's size, or text of its context
/// length.
void give_data(RunConfig& config, const BenchOptions& options, const Parts& parts) {
  const auto reads = [](const std::string& w) { return w == "train" || w == "loader" || w == "scaling"; };
  if (std::none_of(options.what.begin(), options.what.end(), reads)) return;
  if (config.data.options.find("batch_size") == nullptr) config.data.options.set("batch_size", ConfigNode(options.batch));
  ConfigProblems problems;
  const auto model = parts.models.resolve(config.model, "model", problems);
  problems.throw_if_any();
  const bool tokens = takes_tokens(model);
  config.data.name = tokens ? "generated_text" : "generated";
  const char* key = tokens ? "context" : "image_size";
  if (const auto* size = model.options.find(key)) config.data.options.set(key, *size);
}

/// Returns the overrides that the options imply, as words of a configuration.
std::vector<std::string> options_of(const BenchArguments& args) {
  std::vector<std::string> out;
  if (!args.precision.empty()) out.push_back("precision=" + args.precision);
  if (!args.device.empty()) out.push_back("device=" + args.device);
  if (args.threads > 0) out.push_back("trainer.threads=" + std::to_string(args.threads));
  return out;
}

std::vector<std::string> words_of(const BenchArguments& args) {
  auto out = args.words;
  for (auto& word : options_of(args)) out.push_back(std::move(word));
  return out;
}

RunConfig read_config(const BenchArguments& args, const Parts& parts) {
  auto [file, overrides] = split_words(args.words);
  if (!args.model.empty()) {
    overrides.insert(overrides.begin(), "model={name: " + args.model + "}");  // model.KEY=VALUE on the command line adds to this part
    overrides.push_back("model.name=" + args.model);
  }
  for (auto& word : options_of(args)) overrides.push_back(std::move(word));
  ConfigNode node = file.empty() ? ConfigNode::map() : load_yaml(file);
  if (file.empty()) {
    ConfigProblems unknown;  // problems, which are reported later
    const bool tokens = takes_tokens(parts.models.resolve({.name = args.model}, "model", unknown));
    if (tokens) node.set("task", ConfigNode{{"name", "language_model"}});
    node.set("optimizer", tokens || args.model.starts_with("vit")
                              ? ConfigNode{{"name", "adamw"}, {"lr", 1e-3}, {"weight_decay", 0.05}}
                              : ConfigNode{{"name", "sgd"}, {"lr", 0.01}, {"momentum", 0.9}, {"weight_decay", 1e-4}});
    if (args.options.fuse) node.set("precision", "32-true");  // fused models are measured only in this precision
  }
  for (const auto& text : overrides) apply_override(node, text);
  if (args.image > 0) node.set("model.image_size", ConfigNode(args.image));
  if (args.num_classes > 0) {
    node.set("model.num_classes", ConfigNode(args.num_classes));
    node.set("model.allow_unused_classes", ConfigNode(true));  // only the time is measured, so the classes of the data do not matter
  }
  auto config = bind_config(node, parts);
  if (file.empty() && config.data.name.empty() && !config.model.name.empty()) give_data(config, args.options, parts);
  if (args.image > 0 && !config.data.name.empty()) config.data.options.set("image_size", ConfigNode(args.image));
  return config;
}

/// Adds the numbers of the first row to the top level of the document, where scripts look for them.
Report with_first_numbers(Report out, const BenchReport& report) {
  if (report.rows.empty()) return out;
  for (const auto& [key, value] : report.rows.front().numbers) out.data({{key, value}});
  out.data({{"peak_rss_mb", static_cast<double>(host_peak_rss()) / (1 << 20)}});
  return out;
}

int compare(const BenchArguments& args) {
  const auto c = compare_bench_reports(read_bench_report(args.compare[0]), read_bench_report(args.compare[1]));
  show(report_of(c), args.json, args.html);
  return c.passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

/// Shows reports, the figures of a file and published figures next to each other.
int cards(const BenchArguments& args) {
  check_writable({args.html});
  std::vector<CardRow> rows;
  for (const auto& file : args.cards)
    for (auto& row : card_rows(read_bench_report(file), file)) rows.push_back(std::move(row));
  const auto add = [&](const std::vector<CardRow>& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  if (!args.figures.empty()) add(read_cards(args.figures));
  if (args.elsewhere) add(cards_from_elsewhere());
  show(cards_report(rows), args.json, args.html);
  return 0;
}

bool asks(const BenchOptions& options, const char* section) {
  return std::find(options.what.begin(), options.what.end(), section) != options.what.end();
}

void check_flags(const BenchArguments& args) {
  const auto asked = [&](const char* section) { return asks(args.options, section); };
  check(args.options.trace.empty() || asked("dist"), ErrorKind::Usage, "bench", "--trace requires --what dist");
  check(args.nproc.empty() || asked("dist") || asked("stages"), ErrorKind::Usage, "bench", "--nproc requires --what dist or --what stages");
  check(!asked("stages") || (args.options.what.size() == 1 && args.nproc.size() <= 1), ErrorKind::Usage, "bench",
        "--what stages is measured alone, with one number of ranks; hint: --what stages --nproc 2");
  check(!asked("stages") || (args.model.empty() && args.image == 0 && args.num_classes == 0), ErrorKind::Usage, "bench",
        "--what stages trains a configuration with its data; given: --model, --image or --num-classes; hint: CONFIG.yaml model.name=NAME");
  check(args.history.empty() || !args.html.empty(), ErrorKind::Usage, "bench", "--history needs the HTML page; hint: --html FILE");
  check(!args.options.fuse || asked("infer"), ErrorKind::Usage, "bench", "--fuse requires --what infer");
  check(!args.options.activations || asked("step"), ErrorKind::Usage, "bench", "--activations requires --what step");
  std::vector<std::string> files;
  for (const auto& file : {args.out, args.csv, args.html, args.options.trace})
    if (!file.empty()) files.push_back(std::filesystem::absolute(file).lexically_normal().string());
  std::sort(files.begin(), files.end());
  const auto twice = std::adjacent_find(files.begin(), files.end());
  check(twice == files.end(), ErrorKind::Usage, "bench", "two outputs have the same file: ", twice == files.end() ? "" : *twice);
}

/// Returns the report of all sections; nullopt on ranks other than 0.
std::optional<BenchReport> measure_all(const BenchArguments& args, const BenchOptions& options, const Parts& parts) {
  const auto config = read_config(args, parts);
  const bool stages = asks(options, "stages");
  if (!asks(options, "dist") && !stages) return run_bench(config, options, parts);
  auto others = options;
  std::erase(others.what, "dist");
  const auto launch = launch_of_environment();
  if (!launch.launcher.empty()) {
    check((others.what.empty() || stages) && args.nproc.empty(), ErrorKind::Usage, "bench", "this process is rank ", launch.rank, " of ",
          launch.world_size, ", started by ", launch.launcher, ": --what dist alone is measured, without --nproc");
    return bench_as_rank(config, options, args.rank_report, parts);
  }
  if (stages) return bench_stage_worlds(words_of(args), config, options, args.nproc.empty() ? 2 : args.nproc.front(), args.seeds, parts);
  auto worlds = bench_worlds(config, options, args.nproc, parts);
  if (others.what.empty()) return worlds;
  auto out = run_bench(config, others, parts);
  out.rows.insert(out.rows.end(), worlds.rows.begin(), worlds.rows.end());
  out.notes.insert(out.notes.end(), worlds.notes.begin(), worlds.notes.end());
  if (out.exit_code == 0) out.exit_code = worlds.exit_code;
  return out;
}

int bench(const BenchArguments& args, const Parts& parts) {
  if (!args.compare.empty()) return compare(args);
  if (!args.cards.empty() || !args.figures.empty() || args.elsewhere) return cards(args);
  check_flags(args);
  check_writable({args.out, args.csv, args.html, args.options.trace});
  std::vector<BenchReport> history;
  for (const auto& file : args.history) history.push_back(read_bench_report(file));
  auto options = args.options;
  options.stopped = [] { return signal_received() != 0; };
  on_stop_signal([] {});
  const auto measured = measure_all(args, options, parts);
  const int stopped = signal_received() != 0 ? 128 + signal_received() : 0;
  if (!measured || !args.rank_report.empty()) return stopped;
  const auto& report = *measured;
  const auto shown = with_first_numbers(report_of(report, history), report);
  if (!args.out.empty()) save_json(args.out, shown.json());
  if (!args.csv.empty()) write_file_atomic(args.csv, to_csv(report));
  show(shown, args.json, args.html);
  return stopped != 0 ? stopped : report.exit_code;
}

/// Rejects an unknown section on the command line, before any work is done.
CLI::Validator one_of_sections() {
  return CLI::Validator(
      [](std::string& name) {
        const auto& all = bench_sections();
        if (std::find(all.begin(), all.end(), name) != all.end()) return std::string();
        const auto near = nearest_name(name, all);
        return "'" + name + "' is not a section" + (near.empty() ? "" : "; did you mean '" + near + "'?") + "; allowed: " + join(all);
      },
      "");
}

}  // namespace

void add_bench(CLI::App& app, Command& run) {
  auto args = std::make_shared<BenchArguments>();
  auto& o = args->options;
  auto* sub = app.add_subcommand("bench", "measure the speed of training, inference and the loader on this machine");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]; the options below override it");
  sub->add_option("--what", o.what, "what to measure, separated by commas: " + join(bench_sections()))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of_sections())
      ->capture_default_str();
  sub->add_option("--model", args->model, "name of the model");
  sub->add_option("--image", args->image, "height and width of the images")->check(above_zero());
  sub->add_option("--num-classes", args->num_classes, "number of classes of the model, as model.num_classes=N")->check(above_zero());
  sub->add_option("--batch", o.batch, "samples per step of random input")->check(above_zero())->capture_default_str();
  sub->add_option("--precision", args->precision, "as in a configuration");
  sub->add_option("--device", args->device, "as in a configuration");
  sub->add_option("--steps", o.steps, "measured steps")->check(above_zero())->capture_default_str();
  sub->add_option("--warmup", o.warmup, "steps before the measured ones")->check(above_zero())->capture_default_str();
  sub->add_option("--infer-steps", o.infer_steps, "measured predictions")->check(above_zero())->capture_default_str();
  sub->add_option("--sweep-steps", o.sweep_steps, "steps for each size of a sweep")->check(above_zero())->capture_default_str();
  sub->add_option("--pairs", o.pairs, "repetitions of measurements that are interleaved; a verdict needs six")
      ->check(above_zero())
      ->capture_default_str();
  sub->add_option("--threads", args->threads, "CPU threads of operators")->check(above_zero());
  sub->add_flag("--activations", o.activations,
                "with step: also measure the memory of forward and backward, without parameters, gradients and optimizer");
  sub->add_flag("--fuse", o.fuse, "with infer: also measure the fused model");
  sub->add_flag("!--no-phases", o.phases, "with step and train: do not report the phases of a step and the bytes moved");
  const auto sizes = [&](const char* name, std::vector<int64_t>& list, const std::string& text) {
    sub->add_option(name, list, "with scaling: " + text)->delimiter(',')->allow_extra_args(false)->check(above_zero());
  };
  sizes("--scale-batch", o.scaling.batch, "samples per step (8,16,32,64); the other sweeps use the first");
  sizes("--scale-depth", o.scaling.depth, "depths of the model (2,4,8,12; ResNets: 18,34)");
  sizes("--scale-image", o.scaling.image, "heights and widths of images (half, one and two times the model's)");
  sizes("--scale-threads", o.scaling.threads, "CPU threads (1,2,4 to all)");
  sizes("--scale-workers", o.scaling.workers, "loader workers (1,2,4 to the number of cores)");
  sizes("--scale-layers", o.scaling.layers, "layers that are dumped and compared (16,32,64,128)");
  sub->add_option("--scale-steps", o.scaling.steps, "with scaling: measured steps for each size")
      ->check(above_zero())
      ->capture_default_str();
  sub->add_option("--null-trials", o.null_trials, "with null: number of comparisons of two equal programs, each with --pairs pairs")
      ->check(above_zero())
      ->capture_default_str();
  sub->add_option(
         "--nproc", args->nproc,
         "with dist: numbers of ranks, measured one after the other (1,2,4 to the number of cores); with stages: number of ranks (2)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--seeds", args->seeds, "with stages: trainings of each stage, which differ by their seed")
      ->check(above_zero())
      ->capture_default_str();
  sub->add_option("--trace", o.trace, "with dist: write a Chrome trace of the buckets in the last step of the largest number of ranks");
  sub->add_flag("!--no-machine", o.machine, "do not measure the machine's peak speed of matrix products and copies");
  sub->add_option("--history", args->history, "earlier reports for the HTML page, oldest first");
  sub->add_option("--out", args->out, "write the JSON document to this file");
  sub->add_option("--csv", args->csv, "write the numbers as a CSV table");
  sub->add_option("--rank-report", args->rank_report)->group("");  // for a rank that this command starts
  const auto measuring = sub->get_options([](CLI::Option*) { return true; });
  auto* html = sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_option("--compare", args->compare, "A.json B.json: compare two reports; of the other options only --json is accepted")
      ->expected(2);
  const CLI::Option* of_cards[] = {
      sub->add_option("--cards", args->cards,
                      "A.json B.json ...: show the cards of several reports next to each other; speeds are relative to the first row"),
      sub->add_option("--figures", args->figures,
                      "with or without --cards: further figures, from a CSV file with the columns device, batch, samples_per_s, and cann, "
                      "seconds_per_step, memory_gb, power_w, source"),
      sub->add_flag("--elsewhere", args->elsewhere, "the same, with figures that others published")};
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, measuring, html, of_cards = std::vector<const CLI::Option*>(std::begin(of_cards), std::end(of_cards)), &run] {
    const CLI::Option* set = nullptr;
    for (const auto* option : of_cards)
      if (option->count() > 0) set = option;
    for (const auto* option : measuring) {
      if (option->count() == 0) continue;
      if (!args->compare.empty()) throw CLI::ExcludesError("--compare", option->get_name());
      if (set != nullptr) throw CLI::ExcludesError(set->get_name(), option->get_name());
    }
    if (!args->compare.empty() && (html->count() > 0 || set != nullptr))
      throw CLI::ExcludesError("--compare", set != nullptr ? set->get_name() : html->get_name());
    run = [args](const Parts& parts) { return bench(*args, parts); };
  });
}

}  // namespace npu_train::cli
