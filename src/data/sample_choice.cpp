#include "npu_train/data/sample_choice.hpp"

#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kSampler = "data.sampler";
constexpr uint64_t kBytesOfComments = 1 << 16, kBytesOfNumber = 64;  // limits of a file

/// Returns for each sample 1 / (samples of its class).
std::vector<double> balanced_weights(const Dataset& data) {
  std::map<int64_t, int64_t> counts;
  for (int64_t i = 0; i < data.size(); ++i) {
    check(data.label(i) >= 0, ErrorKind::Usage, kSampler, "the data set does not know the class of sample ", i,
          "; hint: Dataset::label(), or sampler=uniform");
    ++counts[data.label(i)];
  }
  std::vector<double> out;
  for (int64_t i = 0; i < data.size(); ++i) out.push_back(1 / static_cast<double>(counts[data.label(i)]));
  return out;
}

/// Returns the numbers of a file with one in each line, as numpy.savetxt writes a vector. Empty lines and comments after # are skipped.
template <class Number>
std::vector<Number> numbers_in(const std::string& path, int64_t samples, std::optional<Number> (*parse)(std::string_view),
                               const char* allowed) {
  const auto text = read_file(path, kBytesOfComments + static_cast<uint64_t>(samples) * kBytesOfNumber);
  std::vector<Number> out;
  int64_t line = 0;
  for_each_line(text, [&](std::string_view whole) {
    ++line;
    const auto number = trimmed_view(whole);
    if (number.empty() || number.starts_with('#')) return;
    const auto value = parse(number);
    check(value.has_value(), ErrorKind::Data, kSampler, path, ", line ", line, ": '", visible_start(number, kBytesOfNumber),
          "'; allowed: ", allowed);
    out.push_back(*value);
  });
  return out;
}

SampleChoice from_file(const std::string& sampler, const std::string& path, int64_t samples) {
  check(!path.empty(), ErrorKind::Usage, "data.sampler_file", "is not given; sampler: ", sampler, " reads its numbers from a file");
  SampleChoice out;
  if (sampler == "weighted") {
    out.weights = numbers_in(path, samples, decimal_number, "UTF-8, with a number in each line, the weight of a sample");
    check(static_cast<int64_t>(out.weights.size()) == samples, ErrorKind::Data, kSampler, path, " has ", out.weights.size(),
          " weights, and the training data have ", samples, " samples; allowed: one for each");
  } else {
    out.subset = numbers_in(path, samples, whole_number,
                            "UTF-8, with a whole number in each line, the index of a sample; hint: numpy.savetxt(..., fmt='%d')");
    check(!out.subset.empty(), ErrorKind::Data, kSampler, path, " is empty; allowed: at least one index");
  }
  return out;
}

}  // namespace

SampleChoice sample_choice(const DatasetPair& pair) {
  const auto& [sampler, path] = std::tie(pair.options.sampler, pair.options.sampler_file);
  const bool in_code = !pair.sample_weights.empty() || !pair.subset.empty(), in_file = sampler == "weighted" || sampler == "subset";
  check(pair.train != nullptr || (sampler == "uniform" && path.empty() && !in_code), ErrorKind::Usage, kSampler,
        "a stream has no sampler; allowed: uniform, without a sampler_file");
  check(!in_code || sampler == "uniform", ErrorKind::Usage, kSampler, "is ", sampler,
        ", and the program chooses the samples; allowed: uniform");
  check(in_file || path.empty(), ErrorKind::Usage, "data.sampler_file", "is given, and sampler is ", sampler,
        "; allowed: with sampler weighted or subset");
  if (!in_code && !in_file) return {sampler == "balanced" ? balanced_weights(*pair.train) : std::vector<double>(), {}};
  const auto samples = pair.train->size();
  auto out = in_code ? SampleChoice{pair.sample_weights, pair.subset} : from_file(sampler, path, samples);
  try {
    DistributedSampler({.size = samples, .weights = out.weights, .subset = out.subset});  // checks them
  } catch (const Error& e) {
    if (in_code) throw;
    throw Error(ErrorKind::Data, kSampler, path + ": " + e.message(), "", std::current_exception());
  }
  return out;
}

DistributedSampler sampler_of(const LoaderOptions& options, int64_t size, uint64_t seed) {
  return DistributedSampler({.size = size,
                             .batch_size = options.batch_size,
                             .shuffle = options.shuffle,
                             .drop_last = options.last_batch == LastBatch::Drop,
                             .seed = seed,
                             .rank = options.rank,
                             .world_size = options.world_size,
                             .weights = options.sample_weights,
                             .subset = options.subset});
}

}  // namespace npu_train::detail
