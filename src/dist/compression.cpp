#include "npu_train/dist/compression.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr const char* kWhere = "dist.compression";
constexpr const char* kForms =
    "none, bf16, fp16, int8, topk:SHARE, ratio:R, topk:SHARE+ratio:R, powersgd:RANK; topk and ratio also with +bf16, +fp16 or +int8";

// Returns the number after "name:"; -1 if it is not a number.
double number_of(const std::string& word) {
  const auto value = decimal_number(word.substr(word.find(':') + 1));
  return value && std::isfinite(*value) ? *value : -1;
}

void set_method(const std::string& word, Compression& out) {
  const auto number = number_of(word);
  const auto share = [&] {
    check(number > 0 && number <= 1, ErrorKind::Usage, kWhere, "'", word, "': a share is more than 0 and at most 1, as in topk:0.01");
    return number;
  };
  if (word.starts_with("topk:")) {
    out.method = Compression::Method::Largest;
    out.share = share();
  } else if (word.starts_with("ratio:")) {
    out.method = Compression::Method::Largest;
    out.ratio = share();
  } else {
    check(number >= 1 && number <= 1024 && number == std::floor(number), ErrorKind::Usage, kWhere, "'", word,
          "': a rank is an integer from 1 to 1024, as in powersgd:4");
    out.method = Compression::Method::LowRank;
    out.rank = static_cast<int64_t>(number);
  }
}

}  // namespace

Compression Compression::parse(const std::string& text) {
  Compression out;
  if (text == "none") return out;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('+', begin), text.size());
    const auto word = text.substr(begin, end - begin);
    begin = end + 1;
    const bool is_method = word.starts_with("topk:") || word.starts_with("ratio:") || word.starts_with("powersgd:");
    const bool is_code = word == "bf16" || word == "fp16" || word == "int8";
    check(is_method || is_code, ErrorKind::Usage, kWhere, "'", text, "' is not known; allowed: ", kForms);
    const bool is_bound = word.starts_with("ratio:") && out.share > 0 && out.ratio == 0;  // upper bound of topk
    check(is_method ? out.method == Method::All || is_bound : out.values == "fp32", ErrorKind::Usage, kWhere, "'", text,
          "' names two of a kind; allowed: ", kForms);
    if (is_method)
      set_method(word, out);
    else
      out.values = word;
  }
  check(out.method != Method::LowRank || out.values == "fp32", ErrorKind::Usage, kWhere, "'", text,
        "': the factors of powersgd travel in fp32; allowed: ", kForms);
  return out;
}

int64_t Compression::integer_bytes(int64_t n, int bits) {
  constexpr int64_t kScaleBytes = 4, kTogether = 8;  // eight integers are packed in `bits` bytes
  return kScaleBytes * ((n + kBlock - 1) / kBlock) + (bits == 8 ? n : (n + kTogether - 1) / kTogether * bits);
}

int Compression::bits_within_ratio(int64_t n) const {
  if (ratio == 0 || share > 0 || values != "fp32") return 0;
  for (int bits = 8; bits >= 2; --bits)
    if (static_cast<double>(integer_bytes(n, bits)) <= ratio * 4 * static_cast<double>(n)) return bits;
  return 0;
}

int64_t Compression::elements_sent(int64_t elements, int ranks, bool in_shards) const {
  int64_t low = 0, high = share > 0 ? static_cast<int64_t>(share * static_cast<double>(elements)) : elements;
  if (ratio == 0) return std::max<int64_t>(1, high);
  // A list goes to each other rank. Uncompressed fp32 sends 1/N of the elements to each rank and, without shards, the same number of sums.
  const double budget = ratio * (in_shards ? 1 : 2) * 4 * static_cast<double>(elements) / ranks;
  while (low < high) {
    const auto middle = (low + high + 1) / 2;
    if (static_cast<double>(kPlaceBytes * middle + coded_bytes(middle)) <= budget)
      low = middle;
    else
      high = middle - 1;
  }
  return std::max<int64_t>(1, low);
}

}  // namespace npu_train
