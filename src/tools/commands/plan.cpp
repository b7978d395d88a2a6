#include "npu_train/tools/plan/plan.hpp"

#include <algorithm>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct PlanArguments {
  std::vector<std::string> words;
  std::vector<int> ranks;
  std::string link, local, peak, step, memory, memory_rate, measured;
  double mfu = 0.4, load = 0;
  int per_machine = 1;
  bool no_memory = false, json = false;
};

PlanOptions plan_options(const PlanArguments& args) {
  PlanOptions out{.ranks = args.ranks};
  out.cluster = {.per_machine = args.per_machine, .load = args.load};
  if (!args.link.empty()) out.cluster.link = link_of("--link", args.link);
  if (!args.local.empty()) out.cluster.local = link_of("--local-link", args.local);
  out.with_memory = !args.no_memory;
  if (!args.memory.empty()) out.memory = size_argument("--memory", args.memory);
  if (!args.peak.empty()) out.rates.flops = args.mfu * flops_of("--peak", args.peak);
  if (!args.step.empty()) {
    out.one_rank_seconds = seconds_of("--step-time", args.step);
    check(out.one_rank_seconds > 0, ErrorKind::Usage, "--step-time", "'", args.step, "' is no time of a step; allowed: above 0");
  }
  if (!args.memory_rate.empty()) out.rates.memory = bytes_per_second_of("--memory-rate", args.memory_rate);
  if (args.measured.empty()) return out;
  out.measured = read_measured(args.measured);
  const bool shares_cores = std::any_of(out.measured.begin(), out.measured.end(), [](const auto& step) { return step.load > 0; });
  // If a measurement does not determine a rate, the rate keeps this value.
  const double memory = args.memory_rate.empty() ? 5e9 : out.rates.memory;
  if (shares_cores) out.rates = {.flops = 1e11, .memory = memory, .message = 1e-4, .contention = 0.2, .carrying = 1e-9};
  return out;
}

int plan(const PlanArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "plan",
        "no configuration is given; hint: npu_tool plan CONFIG.yaml --ranks 8,64 --link 25GB/s,5us --peak 300TFLOPs");
  check(!args.ranks.empty() || !args.measured.empty(), ErrorKind::Usage, "plan",
        "nothing to plan; hint: --ranks 8,64, or --measured FILE to fit measured steps");
  check(!args.peak.empty() || !args.step.empty() || !args.measured.empty(), ErrorKind::Usage, "plan",
        "the speed of a rank is not given; hint: --peak 300TFLOPs, --step-time 0.35s of one rank, or --measured FILE");
  const auto options = plan_options(args);
  const auto config = load_config(file, overrides, parts);
  const ScopedLogSink warnings(make_standard_sink(LogLevel::Warning));
  const auto found = plan_run(config, options, parts);
  show(report_of(found), args.json);
  const bool fits = std::all_of(args.ranks.begin(), args.ranks.end(), [&](int ranks) { return found.best(ranks) != nullptr; });
  return fits ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_plan(CLI::App& app, Command& run) {
  auto args = std::make_shared<PlanArguments>();
  auto* sub = app.add_subcommand(
      "plan", "predict step time, memory and efficiency for numbers of ranks, and the best strategy, shard size and group size");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--ranks", args->ranks, "numbers of ranks (8,64,512): each is planned")->delimiter(',')->allow_extra_args(false);
  sub->add_option("--link", args->link, "bandwidth and latency between machines, for each rank and direction (25GB/s,5us or 1Gbit/s)");
  auto* local = sub->add_option("--local-link", args->local, "the same between ranks of one machine");
  sub->add_option("--per-machine", args->per_machine,
                  "ranks on one machine, among which shards and groups of ranks (dist.group_size=auto) may be")
      ->check(CLI::Range(1, 65536));
  auto* peak = sub->add_option("--peak", args->peak, "products of one rank's device (300TFLOPs)");
  sub->add_option("--mfu", args->mfu, "share of --peak that forward and backward passes reach")->check(CLI::Range(0.001, 1.0))->needs(peak);
  auto* step = sub->add_option("--step-time", args->step, "alternatively: the measured time of a step of one rank (0.35s)");
  auto* measured = sub->add_option("--measured", args->measured,
                                   "alternatively: a CSV of measured steps (ranks, link, strategy, seconds ...) to which the model is "
                                   "fitted; its errors are printed");
  auto* memory = sub->add_option("--memory", args->memory,
                                 "memory of a device (64GB): strategies that need more are not chosen; exit code 7 if none fits");
  sub->add_option("--memory-rate", args->memory_rate, "bandwidth of a device's memory (1TB/s)");
  sub->add_option("--load", args->load, "threads of all ranks of a machine for each of its cores, where ranks share cores")
      ->check(zero_or_more());
  sub->add_flag("--no-memory", args->no_memory, "leave out the memory of a rank, which takes some steps of the model on this machine")
      ->excludes(memory);
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  local->needs("--per-machine");
  peak->excludes(step)->excludes(measured);
  step->excludes(measured);
  sub->callback([args, &run] { run = [args](const Parts& parts) { return plan(*args, parts); }; });
}

}  // namespace npu_train::cli
