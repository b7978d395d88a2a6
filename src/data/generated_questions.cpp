#include "npu_train/data/generated.hpp"

#include <array>

#include "data/document_rules.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {
namespace {

constexpr const char* kGeneratedQuestions = "generated_questions";

QuestionTokens question_about(const DatasetInfo& info, int64_t label, const DocumentRules& rules, const QuestionOptions& questions,
                              Philox& rng) {
  const auto name = [&](int64_t k) { return info.class_names[static_cast<size_t>(k)]; };
  if (rng.below(2) == 0) return detail::question_of_bytes("what is it?", name(label), kGeneratedQuestions, rules, questions);
  const auto others = static_cast<uint32_t>(info.num_classes - 1);
  const bool yes = rng.below(2) == 0;
  const auto asked = yes ? label : (label + 1 + static_cast<int64_t>(rng.below(others))) % info.num_classes;
  return detail::question_of_bytes("is it a " + name(asked) + "?", yes ? "yes" : "no", kGeneratedQuestions, rules, questions);
}

QuestionTokens caption_of(const std::string& name, const DocumentRules& rules, Philox& rng) {
  constexpr std::array<const char*, 3> kBeginnings = {"a ", "an image of a ", "this is a "};
  return {detail::caption_of_bytes(kBeginnings[rng.below(kBeginnings.size())] + name, kGeneratedQuestions, rules), 0};
}

// Opens pairs of images with questions or captions.
template <class Options>
DatasetPair open_generated_pairs(const Options& o, const std::optional<QuestionOptions>& questions, const TransformRegistry& transforms) {
  check(o.mixup_alpha == 0 && o.cutmix_alpha == 0, ErrorKind::Usage, "data",
        "mixup and cutmix mix classes; the images have texts instead; hint: remove them");
  const auto make = [&](int64_t count, uint64_t seed) {
    return std::make_shared<GeneratedQuestions>(generate_shapes(count, seed, o.style), DocumentRules{.context = o.context}, questions,
                                                seed);
  };
  const auto seed = static_cast<uint64_t>(o.data_seed);
  DatasetPair pair;
  pair.train = make(o.train_size, seed);
  pair.val = make(o.val_size, derive_seed(seed, "validation"));  // a different stream of the same seed
  pair.options = o;
  set_pipelines(pair, pair.train->info(), transforms);
  return pair;
}

// Adds the fields of the images.
template <class T>
ConfigTable<T> shape_fields(const char* title) {
  using O = GeneratedOptions;
  // Explicit type arguments: a member of a base class would not be deduced as a member of T.
  return ConfigTable<T>(title)
      .template field<int64_t>("train_size", &O::train_size, "number of training images", between(1, 10'000'000))
      .template field<int64_t>("val_size", &O::val_size, "number of validation images", between(1, 10'000'000))
      .field("context", &T::context, "tokens of the longest text", between(2, 1 << 20))
      .template field<int64_t>("data_seed", &O::data_seed, "seed of images and texts; the run's seed does not affect them")
      .template field<ShapeStyle>("style", &O::style, "difficulty of the images");
}

}  // namespace

GeneratedQuestions::GeneratedQuestions(MemoryImages shapes, const DocumentRules& rules, const std::optional<QuestionOptions>& questions,
                                       uint64_t seed)
    : shapes_(std::move(shapes)), rules_(rules), questions_(questions) {
  rules_.check();
  if (questions_) questions_->check();
  const auto info = shapes_.info();
  check(info.num_classes >= 2 && static_cast<int64_t>(info.class_names.size()) == info.num_classes, ErrorKind::Usage, kGeneratedQuestions,
        "the images have ", info.class_names.size(), " names of ", info.num_classes, " classes; allowed: one of each, at least two");
  for (int64_t i = 0; i < shapes_.size(); ++i) {
    Philox rng(derive_seed(seed, "questions", static_cast<uint64_t>(i)));
    const auto label = shapes_.labels()[static_cast<size_t>(i)];
    texts_.push_back(questions_ ? question_about(info, label, rules_, *questions_, rng)
                                : caption_of(info.class_names[static_cast<size_t>(label)], rules_, rng));
  }
}

DatasetInfo GeneratedQuestions::info() const {
  auto out = shapes_.info();
  out.name = kGeneratedQuestions;
  out.num_classes = 0;  // not a classification: the answer is a text
  out.class_names.clear();
  return out;
}

std::vector<int64_t> GeneratedQuestions::caption(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, kGeneratedQuestions, "image ", index, " of ", size());
  const auto& tokens = texts_[static_cast<size_t>(index)].tokens;
  return {tokens.begin(), tokens.end()};
}

int64_t GeneratedQuestions::prompt(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, kGeneratedQuestions, "image ", index, " of ", size());
  return texts_[static_cast<size_t>(index)].prompt;
}

DatasetPair open_generated_questions(const GeneratedQuestionsOptions& o, const TransformRegistry& transforms) {
  return open_generated_pairs(o, o, transforms);
}

DatasetPair open_generated_captions(const GeneratedCaptionsOptions& o, const TransformRegistry& transforms) {
  return open_generated_pairs(o, std::nullopt, transforms);
}

const ConfigTable<GeneratedQuestionsOptions>& GeneratedQuestionsOptions::config_table() {
  static const auto table = data_fields(question_fields(shape_fields<GeneratedQuestionsOptions>("data generated_questions")));
  return table;
}

const ConfigTable<GeneratedCaptionsOptions>& GeneratedCaptionsOptions::config_table() {
  static const auto table = data_fields(shape_fields<GeneratedCaptionsOptions>("data generated_captions"));
  return table;
}

}  // namespace npu_train
