#include "npu_train/data/generated.hpp"

#include <array>

#include "npu_train/core/error.hpp"
#include "npu_train/core/seed.hpp"

namespace npu_train {
namespace {

using Words = std::array<const char*, 8>;
constexpr Words kNouns = {"dog", "cat", "horse", "bird", "child", "teacher", "driver", "painter"};
constexpr Words kPlurals = {"dogs", "cats", "horses", "birds", "children", "teachers", "drivers", "painters"};
constexpr Words kAdjectives = {"old", "young", "small", "tall", "quiet", "happy", "hungry", "tired"};
constexpr Words kVerbs = {"sees", "follows", "likes", "calls", "remembers", "watches", "finds", "helps"};
constexpr Words kPluralVerbs = {"see", "follow", "like", "call", "remember", "watch", "find", "help"};

std::string word_of(const Words& words, Philox& rng) { return words[rng.below(static_cast<uint32_t>(words.size()))]; }

std::string noun_phrase(bool plural, Philox& rng) {
  std::string out = plural ? (rng.below(2) == 0 ? "the " : "some ") : (rng.below(2) == 0 ? "the " : "every ");
  if (rng.below(2) == 0) out += word_of(kAdjectives, rng) + " ";
  return out + word_of(plural ? kPlurals : kNouns, rng);
}

std::string sentence(Philox& rng) {
  const bool plural = rng.below(2) == 0;
  std::string out = noun_phrase(plural, rng);
  if (rng.below(3) == 0) out += " near " + noun_phrase(rng.below(2) == 0, rng);
  return out + " " + word_of(plural ? kPluralVerbs : kVerbs, rng) + " " + noun_phrase(rng.below(2) == 0, rng) + ". ";
}

}  // namespace

std::string generate_text(int64_t bytes, uint64_t seed) {
  constexpr int64_t kMost = int64_t{1} << 26;
  check(bytes >= 0 && bytes <= kMost, ErrorKind::Usage, "generated_text", bytes, " bytes; allowed: 0 to ", kMost,
        "; hint: reduce data.train_size or data.context");
  Philox rng(derive_seed(seed, "text"));
  std::string out;
  out.reserve(static_cast<size_t>(bytes) + 128);
  while (static_cast<int64_t>(out.size()) < bytes) out += sentence(rng);
  out.resize(static_cast<size_t>(bytes));
  return out;
}

const ConfigTable<GeneratedTextOptions>& GeneratedTextOptions::config_table() {
  using T = GeneratedTextOptions;
  static const auto table =
      data_fields(prefix_fields(ConfigTable<T>("data generated_text")
                                    .field("train_size", &T::train_size, "number of training samples", between(1, 10'000'000))
                                    .field("val_size", &T::val_size, "number of validation samples", between(1, 10'000'000))
                                    .field("context", &T::context, "tokens of a sample", between(1, 1 << 20))
                                    .field("data_seed", &T::data_seed, "seed of the text; the run's seed does not affect it")));
  return table;
}

}  // namespace npu_train
