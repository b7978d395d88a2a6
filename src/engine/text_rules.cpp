#include "engine/text_rules.hpp"

#include <algorithm>
#include <exception>

#include "engine/config_rules.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/models/internvl.hpp"

namespace npu_train::detail {
namespace {

// Returns the number of tokens of the longest sample that enter the model; 0 for data without tokens.
int64_t tokens_of_sample(const DatasetPair& data) {
  if (data.train == nullptr) return 0;
  if (const auto* captioned = dynamic_cast<const CaptionedImages*>(data.train.get()))
    return captioned->questions() ? captioned->longest() - 1 : 0;
  if (dynamic_cast<const ImageDataset*>(data.train.get()) != nullptr) return 0;
  if (const auto* sequences = dynamic_cast<const SequenceDataset*>(data.train.get())) return sequences->longest();
  for (const auto& [name, value] : data.train->get(0).fields)
    if (name == "input" && value.dim() == 1 && value.scalar_type() == at::kLong) return value.size(0);
  return 0;
}

bool has_labels(const Dataset& data) {
  const auto sample = data.get(0);
  return std::any_of(sample.fields.begin(), sample.fields.end(),
                     [](const auto& field) { return field.first == "target" && field.second.dim() == 0; });
}

// Returns whether the samples have several documents, as those of PackedDocuments, or of a program's own sequences with position_ids.
bool is_packed(const Dataset* data) {
  if (dynamic_cast<const SequenceDataset*>(data) == nullptr || data->size() == 0) return false;
  try {
    const auto sample = data->get(0);
    return std::any_of(sample.fields.begin(), sample.fields.end(), [](const auto& field) { return field.first == "position_ids"; });
  } catch (const std::exception&) {  // the Loader reports a bad sample, or omits it
    return false;
  }
}

std::optional<int64_t> context_of(const ConfigNode& options) {
  const auto* value = options.find("context");
  return value != nullptr && value->is_scalar() ? std::optional<int64_t>(std::stoll(value->scalar())) : std::nullopt;
}

}  // namespace

int64_t accumulated_batches(const DatasetPair& data, const TrainerOptions& options, int64_t ranks) {
  const int64_t wanted = data.options.batch_tokens;
  if (wanted == 0) return options.accumulate_grad_batches;
  check(options.accumulate_grad_batches == 1, ErrorKind::Usage, "data.batch_tokens",
        "it sets the micro-batches of a step, and so does trainer.accumulate_grad_batches=", options.accumulate_grad_batches,
        "; allowed: one of them");
  const int64_t context = tokens_of_sample(data);
  check(context > 0, ErrorKind::Usage, "data.batch_tokens", "the samples of '", data.info().name,
        "' are no sequences of token ids; allowed with: tokens, documents, generated_text, image_questions; hint: "
        "trainer.accumulate_grad_batches");
  const int64_t tokens = data.options.batch_size * context * ranks, batches = (wanted + tokens - 1) / tokens;
  log_info("data.batch_tokens: ", batches, batches == 1 ? " micro-batch" : " micro-batches", " of ", data.options.batch_size, " x ",
           context, " tokens on each rank make a step of ", with_commas(batches * tokens), " tokens");
  return batches;
}

void check_context(const RunConfig& config, const Parts& parts) {
  const auto own = builtin_parts();
  if (!is_own_part(parts.models, own.models, config.model.name) || !is_own_part(parts.datasets, own.datasets, config.data.name)) return;
  ConfigProblems none;
  const auto longest = context_of(parts.models.resolve(config.model, "model", none).options);
  const auto given = context_of(parts.datasets.resolve(config.data, "data", none).options);
  check(!longest || !given || *given <= *longest, ErrorKind::Usage, "data.context", "samples of ", given.value_or(0),
        " tokens, and the model has positions for ", longest.value_or(0),
        " (model.context); allowed: at most as many; hint: data.context=", longest.value_or(0), ", or a larger model.context");
}

void check_image_tokens(const DatasetPair& data, const Model& model) {
  const auto* captioned = dynamic_cast<const CaptionedImages*>(data.train.get());
  const auto places = image_places(model);
  const auto texts = captioned != nullptr ? captioned->questions() : std::nullopt;
  if (!places || !texts) return;
  check(texts->image_token == places->token, ErrorKind::Usage, "data.image_token", "it is ", texts->image_token, ", and model.image_token ",
        places->token, "; they must be equal");
  check(texts->image_tokens == places->count, ErrorKind::Usage, "data.image_tokens", "it is ", texts->image_tokens,
        ", and the model makes ", places->count, " vectors of an image, (image_size / patch_size / pixel_shuffle)^2; they must be equal");
}

void check_packing(const DatasetPair& data, const Model& model) {
  const bool packed = is_packed(data.train.get()) || is_packed(data.val.get());
  check(!packed || (model.packs_documents && !model.forward.takes_tensor()), ErrorKind::Usage, "data.packing", "the model '", model.name,
        "' does not keep the documents of a sample apart; allowed with: gpt2, llama, qwen2, glm, and models that set "
        "Model::packs_documents before chain_blocks(); hint: data.packing=false");
}

ContextWarmupHook::ContextWarmupHook(const DatasetPair& data, const TrainerOptions& options, int64_t ranks)
    : warmup_(data.options.context_warmup), micro_batches_(ranks * options.accumulate_grad_batches) {
  if (warmup_.steps == 0) return;
  constexpr const char* kWhere = "data.context_warmup";
  const bool images = dynamic_cast<const ImageDataset*>(data.train.get()) != nullptr;
  context_ = images ? 0 : tokens_of_sample(data);
  check(context_ > 0, ErrorKind::Usage, kWhere, "the samples of '", data.info().name,
        "' are not texts that can be shortened; allowed with: tokens, documents without labels, generated_text");
  check(!has_labels(*data.train), ErrorKind::Usage, kWhere, "the texts have labels, which their beginnings need not have; hint: remove it");
  check(options.overfit_batches == 0 && !options.static_shapes, ErrorKind::Usage, kWhere,
        "lengths change from step to step, and trainer.overfit_batches and trainer.static_shapes need equal ones; allowed: one of them");
  warmup_length(warmup_, context_, 0);
}

BatchHook ContextWarmupHook::hook() const {
  if (warmup_.steps == 0) return {};
  return [*this](Batch batch) {
    const auto step = batch.epoch * windows_per_epoch_->load() + batch.index / micro_batches_;
    const auto length = warmup_length(warmup_, context_, step);
    return length < context_ ? first_tokens(std::move(batch), length) : batch;
  };
}

void ContextWarmupHook::set_rounds_per_epoch(std::optional<int64_t> rounds, const TrainerOptions& options) {
  const auto limited = limited_rounds(options, rounds);
  const auto k = options.accumulate_grad_batches;
  windows_per_epoch_->store(limited ? (*limited + k - 1) / k : 1);
}

}  // namespace npu_train::detail
