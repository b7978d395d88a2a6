#include "npu_train/data/sample_choice.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "npu_train/core/byte_order_mark.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/whole_number.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kSampler = "data.sampler";
constexpr uint64_t kLongestLine = 64;  // of a number, on average

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

/// Returns the numbers of a file with one in each line, as numpy.savetxt writes a vector.
template <class Number>
std::vector<Number> numbers_in(const std::string& path, int64_t samples, std::optional<Number> (*parse)(std::string_view),
                               const char* allowed) {
  const auto text = read_file(path, (static_cast<uint64_t>(samples) + 1) * kLongestLine);
  std::vector<Number> out;
  int64_t line = 1;
  for (size_t begin = start_of_text(text); begin < text.size(); ++line) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto number = std::string_view(text).substr(begin, end - begin - (end > begin && text[end - 1] == '\r' ? 1 : 0));
    const auto value = parse(number);
    check(value.has_value(), ErrorKind::Data, kSampler, path, ", line ", line, ": '", number.substr(0, kLongestLine),
          "'; allowed: ", allowed);
    out.push_back(*value);
    begin = end + 1;
  }
  return out;
}

SampleChoice from_file(const std::string& sampler, const std::string& path, int64_t samples) {
  check(!path.empty(), ErrorKind::Usage, "data.sampler_file", "is not given; sampler: ", sampler, " reads its numbers from a file");
  SampleChoice out;
  if (sampler == "weighted") {
    out.weights = numbers_in(path, samples, decimal_number, "a number in each line, the weight of a sample");
    check(static_cast<int64_t>(out.weights.size()) == samples, ErrorKind::Data, kSampler, path, " has ", out.weights.size(),
          " weights, and the training data have ", samples, " samples; allowed: one for each");
  } else {
    out.subset = numbers_in(path, samples, whole_number, "a whole number in each line, the index of a sample");
    check(!out.subset.empty(), ErrorKind::Data, kSampler, path, " is empty; allowed: at least one index");
  }
  return out;
}

}  // namespace

SampleChoice sample_choice(const DatasetPair& pair) {
  const auto& data = pair.options;
  const bool in_code = !pair.sample_weights.empty() || !pair.subset.empty(),
             in_file = data.sampler == "weighted" || data.sampler == "subset";
  check(!in_code || data.sampler == "uniform", ErrorKind::Usage, kSampler, "is ", data.sampler,
        ", and the program chooses the samples; allowed: uniform");
  check(in_file || data.sampler_file.empty(), ErrorKind::Usage, "data.sampler_file", "is given, and sampler is ", data.sampler,
        "; allowed: with sampler weighted and subset");
  if (in_code) return {pair.sample_weights, pair.subset};
  if (in_file) return from_file(data.sampler, data.sampler_file, pair.train->size());
  return {data.sampler == "balanced" ? balanced_weights(*pair.train) : std::vector<double>(), {}};
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
