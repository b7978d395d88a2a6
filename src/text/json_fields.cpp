#include "text/json_fields.hpp"

#include <algorithm>
#include <utility>

#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"

namespace npu_train::detail {

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) { object_.members(where_); }

const Json* JsonFields::find(const std::string& key) {
  read_.push_back(key);
  const auto* found = object_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json& JsonFields::at(const std::string& key) {
  read_.push_back(key);
  return object_.at(key, where_);
}

bool JsonFields::flag(const std::string& key, std::optional<bool> missing) {
  const auto* found = missing ? find(key) : &at(key);
  return found == nullptr ? *missing : found->boolean(where(key));
}

std::string JsonFields::text(const std::string& key) { return at(key).text(where(key)); }

std::optional<std::string> JsonFields::optional_text(const std::string& key) {
  const auto* found = find(key);
  if (found == nullptr) return std::nullopt;
  return found->text(where(key));
}

int64_t JsonFields::integer(const std::string& key, int64_t least, int64_t most) {
  const auto value = at(key).integer(where(key));
  check(value >= least && value <= most, ErrorKind::Data, "tokenizer", where(key), " is ", value, "; allowed: ", least, " to ", most);
  return value;
}

char32_t JsonFields::character(const std::string& key) {
  const auto value = text(key);
  size_t end = 0;
  const auto point = value.empty() ? 0 : next_point(value, end);
  check(end > 0 && end == value.size(), ErrorKind::Data, "tokenizer", where(key), " is '", visible_start(value, 40),
        "'; allowed: one character");
  return point;
}

void JsonFields::finish() const {
  for (const auto& member : object_.members(where_))
    check(std::find(read_.begin(), read_.end(), member.key) != read_.end(), ErrorKind::Data, "tokenizer", where_, ": the member '",
          visible_start(member.key, 100), "' is not supported");
}

const std::vector<Json>& read_steps(JsonFields& fields, const std::string& key) {
  constexpr size_t kMost = 64;
  const auto where = fields.where(key);
  const auto& steps = fields.at(key).items(where);
  check(steps.size() <= kMost && std::count(where.begin(), where.end(), '[') <= 1, ErrorKind::Data, "tokenizer", where, ": ", steps.size(),
        " steps; allowed: at most ", kMost, ", and sequences in sequences, but not in these");
  return steps;
}

void refuse_type(const std::string& where, const std::string& type, const std::string& allowed) {
  throw Error(ErrorKind::Data, "tokenizer", where + ": the type '" + visible_start(type, 100) + "' is not supported; allowed: " + allowed);
}

}  // namespace npu_train::detail
