#include <algorithm>
#include <optional>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

constexpr const char* kFindBatch = "find-batch";
constexpr int kMostTrials = 5;  // number of trials, each with a tenth fewer samples than the one before

struct FindBatchArguments {
  std::vector<std::string> words;
  std::string hbm;
  bool json = false;
};

struct Found {
  int64_t batch = 0, predicted = 0;
  std::optional<int64_t> measured{};  // the batch with which two steps were measured
  std::vector<int64_t> too_large{};   // batches that were predicted to fit and did not
};

// Returns the bytes of the card on which the run trains; 0 if there is none.
int64_t memory_of_card(const RunConfig& config) {
  if (config.device.starts_with("sim_npu")) return config.sim_npu.hbm_bytes();
  const auto device = config.device == "auto" ? resolve_device("auto") : Device::parse(config.device);
  return device.is_cpu() ? 0 : std::max<int64_t>(0, backend_of(device).memory(device).total);
}

// Returns the largest batch that fits. `prove`: trains two steps with it, and with smaller ones until one fits.
std::optional<Found> find(const RunConfig& config, int64_t limit, bool prove, const Parts& parts) {
  const auto model = measure_memory(config, parts);
  Found out{.batch = model.largest_batch(limit)};
  for (int i = 0; i < kMostTrials && out.batch > 0; ++i) {
    out.predicted = model.peak(out.batch).allocated;
    if (!prove) return out;
    try {
      out.measured = measured_peak(config, out.batch, parts);
      if (*out.measured <= limit) return out;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::OutOfMemory) throw;
    }
    out.too_large.push_back(out.batch);
    out.batch = std::min(out.batch - 1, out.batch * 9 / 10);
  }
  return std::nullopt;
}

std::string bytes(int64_t n) { return human_bytes(static_cast<double>(n)); }

int find_batch(const FindBatchArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, kFindBatch, "no configuration; give CONFIG.yaml [key=value ...]");
  const auto config = load_config(file, overrides, parts);
  check(config.device != "cpu", ErrorKind::Usage, kFindBatch,
        "device is cpu, which has the memory of the machine; hint: device=auto with --hbm 32GiB, for a card that is not here");
  const auto card = memory_of_card(config), limit = args.hbm.empty() ? card : size_argument("--hbm", args.hbm);
  check(limit > 0, ErrorKind::Usage, kFindBatch, "no card is here; hint: give the memory of the one that is meant, as in --hbm 32GiB");
  const ScopedLogSink warnings(make_standard_sink(LogLevel::Warning));
  const auto found = find(npu_train::detail::without_limits(config), limit, /*prove=*/card > 0, parts);
  if (!found) {
    const auto memory = args.hbm.empty() ? std::to_string(limit >> 20) + "MiB" : args.hbm;
    print(args.json, Json::object({{"limit", limit}, {"batch_size", Json()}}),
          "no batch fits into " + bytes(limit) + "; hint: npu_tool memory " + shell_words(args.words) + " --hbm " + shell_word(memory) +
              " shows what takes the memory, and other precisions, strategies and checkpointing\n");
    return static_cast<int>(ErrorKind::CheckFailed);
  }
  const auto eight = multiple_below(found->batch, 8), power = power_below(found->batch);
  std::string text = "largest batch: data.batch_size=" + std::to_string(found->batch) + ", for " + bytes(limit) +
                     "; tensors: " + bytes(found->predicted) + " predicted, " +
                     (found->measured ? bytes(*found->measured) + " measured in two steps" : "not measured, since no card is here") + "\n";
  if (eight > 0) text += "multiple of 8: data.batch_size=" + std::to_string(eight) + "\n";
  text += "power of two:  data.batch_size=" + std::to_string(power) + "\n";
  print(args.json,
        Json::object({{"batch_size", found->batch},
                      {"multiple_of_8", eight},
                      {"power_of_2", power},
                      {"limit", limit},
                      {"predicted", found->predicted},
                      {"measured", found->measured ? Json(*found->measured) : Json()},
                      {"too_large", npu_train::detail::json_list(found->too_large)}}),
        text);
  return 0;
}

}  // namespace

void add_find_batch(CLI::App& app, Command& run) {
  auto args = std::make_shared<FindBatchArguments>();
  auto* sub = app.add_subcommand("find-batch",
                                 "predict the largest batch that fits into the memory of a card, and prove it by two steps on the card");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--hbm", args->hbm, "memory of the card (32GiB; default: that of the configuration's device)");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return find_batch(*args, parts); }; });
}

}  // namespace npu_train::cli
