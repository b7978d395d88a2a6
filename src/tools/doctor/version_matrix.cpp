#include "npu_train/tools/doctor/version_matrix.hpp"

#include <cctype>
#include <charconv>

#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "tools/doctor/facts/versions.hpp"

namespace npu_train {
namespace {

constexpr size_t kMostVersionParts = 16;

// Parses "9", "RC1", "alpha002", "post4"; nullopt for other text.
std::optional<Version::Part> version_part(const std::string& text) {
  const std::pair<std::string_view, int> ranks[] = {{"alpha", 0}, {"beta", 1}, {"rc", 3}, {"t", 2}, {"post", 5}, {"", 4}};
  for (const auto& [prefix, rank] : ranks) {
    if (!text.starts_with(prefix)) continue;
    const auto digits = text.substr(prefix.size());
    int number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool whole = error == std::errc() && end == digits.data() + digits.size() && number >= 0;
    if (whole) return Version::Part{rank, number};
    if (digits.empty() && rank != 4) return Version::Part{rank, 0};
  }
  return std::nullopt;
}

const std::vector<VersionRule>& version_rules() {
  static const auto rules = [] {
    std::vector<VersionRule> out;
    for (const auto& row : detail::facts_texts(facts::versions, "versions.tsv", 5))
      out.push_back({row[0], row[1], row[2], row[3], row[4] == "yes"});
    return out;
  }();
  return rules;
}

}  // namespace

std::optional<Version> Version::parse(std::string_view text) {
  Version out;
  const auto lower = to_lower(text.substr(0, text.find('+')));
  for (size_t from = 0; from < lower.size() && out.parts.size() < kMostVersionParts;) {
    const auto to = std::min(lower.find_first_of(".-_ ", from), lower.size());
    const auto part = version_part(lower.substr(from, to - from));
    if (!part) break;
    out.parts.push_back(*part);
    from = to + 1;
  }
  if (out.parts.empty() || out.parts[0].rank != 4) return std::nullopt;
  return out;
}

std::weak_ordering Version::operator<=>(const Version& other) const {
  const Part none{4, 0};
  for (size_t i = 0; i < std::max(parts.size(), other.parts.size()); ++i) {
    const auto& a = i < parts.size() ? parts[i] : none;
    const auto& b = i < other.parts.size() ? other.parts[i] : none;
    if (a != b) return a < b ? std::weak_ordering::less : std::weak_ordering::greater;
  }
  return std::weak_ordering::equivalent;
}

std::string Version::minor() const {
  const bool two = parts.size() > 1 && parts[1].rank == 4;
  return parts.empty() ? "" : std::to_string(parts[0].number) + "." + std::to_string(two ? parts[1].number : 0);
}

std::optional<VersionRule> version_rule(std::string_view what, std::string_view version) {
  const auto parsed = Version::parse(version);
  const auto key = parsed ? parsed->minor() : "";
  for (const auto& rule : version_rules())
    if (rule.what == what && rule.key == key) return rule;
  return std::nullopt;
}

std::vector<std::string> version_keys(std::string_view what) {
  std::vector<std::string> out;
  for (const auto& rule : version_rules())
    if (rule.what == what) out.push_back(rule.key);
  return out;
}

std::string version_matrix_date() { return detail::facts_note(facts::versions, "as of"); }

}  // namespace npu_train
