#include "models/weights/weight_rules.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/families.hpp"

namespace npu_train::detail {
namespace {

// The texts that a pattern's wildcards match, in order; at most three: "layer@.#.conv1.*".
struct Captured {
  std::array<int64_t, 2> numbers{};
  size_t count = 0;
  std::string_view rest;
};

std::optional<Captured> match(std::string_view pattern, std::string_view name) {
  Captured out;
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    const char c = pattern.front();
    if (c == '*') {
      out.rest = name;
      return name.empty() ? std::nullopt : std::optional(out);
    }
    if (c == '#' || c == '@') {
      size_t digits = 0;
      int64_t number = 0;
      for (; digits < name.size() && digits < 6 && name[digits] >= '0' && name[digits] <= '9'; ++digits)
        number = 10 * number + name[digits] - '0';
      if (digits == 0 || (digits > 1 && name[0] == '0')) return std::nullopt;
      out.numbers[out.count++] = number;
      name.remove_prefix(digits);
    } else if (name.empty() || name.front() != c) {
      return std::nullopt;
    } else {
      name.remove_prefix(1);
    }
  }
  return name.empty() ? std::optional(out) : std::nullopt;
}

// Fills in the wildcards, with `shift` added to the number of an @; "" if the number becomes negative.
std::string fill(std::string_view pattern, const Captured& captured, int64_t shift) {
  std::string out;
  size_t at = 0;
  for (const char c : pattern) {
    if (c == '*') {
      out += captured.rest;
    } else if (c == '#' || c == '@') {
      const auto number = captured.numbers[at++] + (c == '@' ? shift : 0);
      if (number < 0) return "";
      out += std::to_string(number);
    } else {
      out += c;
    }
  }
  return out;
}

// Returns the block's pattern "encoder.layer.#.*" for a rule "encoder.layer.#.output.dense.*"; "" for a tensor outside of the blocks.
std::string block_of(std::string_view pattern) {
  const auto number = pattern.find_last_of("#@");
  return number == std::string_view::npos ? "" : std::string(pattern.substr(0, number + 1)) + ".*";
}

}  // namespace

std::string Naming::ours(std::string_view name) const {
  if (const auto found = match(head.theirs, name)) return fill(head.ours, *found, 0);
  if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
  for (const auto& rule : rules)
    if (const auto found = match(rule.theirs, name)) return fill(rule.ours, *found, 1);
  return "";
}

std::string Naming::theirs(std::string_view name) const {
  if (const auto found = match(head.ours, name)) return fill(head.theirs, *found, 0);
  for (const auto& rule : rules) {
    const auto found = match(rule.ours, name);
    const auto other = found ? fill(rule.theirs, *found, -1) : "";
    if (!other.empty()) return rule.above ? other : base + other;
  }
  return "";
}

bool Naming::transposes(std::string_view name) const {
  if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
  for (const auto& rule : rules)
    if (match(rule.theirs, name)) return rule.transposed;
  return false;
}

bool Naming::computes_with(std::string_view name) const {
  if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
  const auto is = [&](const std::string& pattern) { return !pattern.empty() && match(pattern, name).has_value(); };
  if (std::any_of(unneeded.begin(), unneeded.end(), is)) return false;
  const auto tells = [&](const NameRule& rule) { return (rule.part && is(rule.theirs)) || is(block_of(rule.theirs)); };
  return std::any_of(rules.begin(), rules.end(), tells) || std::any_of(foreign.begin(), foreign.end(), is);
}

Naming own_naming(Naming theirs) {
  std::vector<NameRule> rules;
  for (const auto& rule : theirs.rules)
    if (std::none_of(rules.begin(), rules.end(), [&](const NameRule& r) { return r.ours == rule.ours; }))
      rules.push_back({rule.ours, rule.ours});
  theirs.libraries = {"torchvision"};
  theirs.base = "";
  theirs.rules = std::move(rules);
  theirs.head.theirs = theirs.head.ours;
  return theirs;
}

size_t Naming::matches(const std::vector<std::string>& names) const {
  const auto matched = [&](const NameRule& rule, std::string_view name) {
    if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
    return match(rule.theirs, name).has_value();
  };
  bool first = false, second = false;
  size_t count = 0;
  for (const auto& name : names) {
    first = first || matched(rules[0], name);
    second = second || matched(rules[1], name);
    count += ours(name).empty() ? 0 : 1;
  }
  return first && second ? count : 0;
}

KnownNaming known_naming(const std::vector<std::string>& names) {
  KnownNaming best;
  size_t most = 0;
  for (const auto& family : model_families())
    for (const auto& naming : family.namings)
      if (const auto count = naming.matches(names); count > most) best = {&family, &naming}, most = count;
  return best;
}

}  // namespace npu_train::detail
