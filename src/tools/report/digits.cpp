#include "tools/report/digits.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

std::string written(double value, std::chars_format format, int decimals) {
  std::array<char, 512> out{};
  return {out.data(), std::to_chars(out.data(), out.data() + out.size(), value, format, decimals).ptr};
}

std::string without_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::string fixed_plain(double value, int decimals) {
  const auto text = without_zeros(written(std::abs(value), std::chars_format::fixed, decimals));
  return value < 0 && text != "0" ? "-" + text : text;
}

std::string fixed(double value, int decimals) {
  const auto text = fixed_plain(std::abs(value), decimals);
  const auto point = std::min(text.find('.'), text.size());
  return (value < 0 && text != "0" ? "-" : "") + with_commas(std::stoll(text.substr(0, point))) + text.substr(point);
}

std::string scientific(double value, int digits) {
  const auto text = written(value, std::chars_format::scientific, digits - 1);
  const auto e = text.find('e');
  return without_zeros(text.substr(0, e)) + "e" + std::to_string(std::stoi(text.substr(e + 1)));
}

}  // namespace npu_train::detail
