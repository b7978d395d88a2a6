#include "npu_train/data/data_options.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kWarmup = "data.context_warmup";
constexpr int64_t kMultiple = 8;  // multiples of 8 are fast in kernels

}  // namespace

int64_t warmup_length(const ContextWarmup& warmup, int64_t context, int64_t step) {
  check(warmup.from >= kMultiple && warmup.from < context, ErrorKind::Usage, kWarmup, "from is ", warmup.from, " and samples have ",
        context, " tokens; allowed: ", kMultiple, " to ", context - 1);
  if (step >= warmup.steps) return context;
  const auto share = static_cast<double>(std::max<int64_t>(0, step)) / static_cast<double>(warmup.steps);
  const auto length = warmup.from + static_cast<int64_t>(share * static_cast<double>(context - warmup.from));
  return length / kMultiple * kMultiple;
}

Batch first_tokens(Batch batch, int64_t length) {
  check(batch.has("input") && batch.input().dim() == 2 && batch.input().scalar_type() == at::kLong, ErrorKind::Usage, kWarmup,
        "the samples are no sequences of token ids; allowed with: tokens, documents, generated_text");
  const int64_t tokens = batch.input().size(1);
  if (tokens <= length) return batch;
  for (const auto& [name, value] : std::vector<Batch::Field>(batch.fields()))
    if (value.dim() == 2 && value.scalar_type() == at::kLong && value.size(1) == tokens)
      batch.set(name, value.narrow(1, 0, length).contiguous());
  return batch;
}

const ConfigTable<ContextWarmup>& ContextWarmup::config_table() {
  static const auto table = ConfigTable<ContextWarmup>("context_warmup")
                                .field("from", &ContextWarmup::from, "tokens of a sample in the first step", at_least(8))
                                .field("steps", &ContextWarmup::steps,
                                       "steps until samples are complete; they grow linearly, in multiples of 8; 0: off", at_least(0));
  return table;
}

}  // namespace npu_train
