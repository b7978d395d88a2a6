#include "npu_train/io/json.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

const char* name_of(Json::Kind kind) {
  static constexpr const char* names[] = {"null", "a boolean", "an integer", "a number", "text", "an array", "an object"};
  return names[static_cast<int>(kind)];
}

void check_kind(const Json& value, Json::Kind wanted, const std::string& where) {
  check(value.kind() == wanted, ErrorKind::Data, "json", where, ": ", name_of(value.kind()), " where ", name_of(wanted), " is needed");
}

/// Builds the document from events: limits hold before memory is spent, and a repeated key is seen.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& source, const JsonLimits& limits) : source_(source), limits_(limits) {}
  Json take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(static_cast<int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) fail("an integer beyond 64 bits");
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(static_cast<double>(value)); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    auto& frame = frames_.back();
    if (!frame.keys.insert(value).second) fail("the key '" + value.substr(0, 200) + "' is there twice");
    frame.members.emplace_back(std::move(value), Json());
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    fail("not JSON at byte " + std::to_string(position) + ": " + std::string(e.what()).substr(0, 300));
  }

 private:
  struct Frame {
    bool is_object;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> members;
    std::unordered_set<std::string> keys;
  };

  [[noreturn]] void fail(const std::string& message) const { throw Error(ErrorKind::Data, "json", source_ + ": " + message); }

  bool open(const Json& kind) {
    if (frames_.size() >= limits_.depth) fail("nested deeper than " + std::to_string(limits_.depth) + " levels");
    frames_.push_back({kind.is_object(), {}, {}, {}});
    return true;
  }

  bool close() {
    auto frame = std::move(frames_.back());
    frames_.pop_back();
    return add(frame.is_object ? Json::object(std::move(frame.members)) : Json::array(std::move(frame.items)));
  }

  bool add(Json value) {
    if (++values_ > limits_.values) fail("more than " + with_commas(static_cast<int64_t>(limits_.values)) + " values");
    if (frames_.empty()) {
      root_ = std::move(value);
    } else if (frames_.back().is_object) {
      frames_.back().members.back().second = std::move(value);
    } else {
      frames_.back().items.push_back(std::move(value));
    }
    return true;
  }

  const std::string& source_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Frame> frames_;
  size_t values_ = 0;
};

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

void write(const Json& value, int indent, int depth, std::string& out) {
  const auto new_line = [&](int level) {
    if (indent <= 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  switch (value.kind()) {
    case Json::Kind::Null:
      out += "null";
      break;
    case Json::Kind::Boolean:
      out += value.boolean("") ? "true" : "false";
      break;
    case Json::Kind::Integer:
      out += std::to_string(value.integer(""));
      break;
    case Json::Kind::Number: {
      const double number = value.number("");
      auto text = shortest(number);
      if (!std::isfinite(number)) {
        text = json_text(text);
      } else if (text.find_first_of(".e") == std::string::npos) {
        text += ".0";  // stays a number and does not become an integer
      }
      out += text;
      break;
    }
    case Json::Kind::Text:
      out += json_text(value.text(""));
      break;
    case Json::Kind::Array: {
      const auto& items = value.items("");
      out += '[';
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += indent > 0 ? "," : ", ";
        new_line(depth + 1);
        write(items[i], indent, depth + 1, out);
      }
      if (!items.empty()) new_line(depth);
      out += ']';
      break;
    }
    case Json::Kind::Object: {
      const auto& members = value.members("");
      out += '{';
      for (size_t i = 0; i < members.size(); ++i) {
        if (i > 0) out += indent > 0 ? "," : ", ";
        new_line(depth + 1);
        out += json_text(members[i].key);
        out += ": ";
        write(members[i].value, indent, depth + 1, out);
      }
      if (!members.empty()) new_line(depth);
      out += '}';
      break;
    }
  }
}

}  // namespace

Json Json::array(std::vector<Json> items) {
  Json out;
  out.kind_ = Kind::Array;
  out.items_ = std::move(items);
  return out;
}

Json Json::object(std::vector<std::pair<std::string, Json>> members) {
  Json out;
  out.kind_ = Kind::Object;
  out.members_.reserve(members.size());
  for (auto& [key, value] : members) out.members_.push_back({std::move(key), std::move(value)});
  return out;
}

bool Json::boolean(const std::string& where) const {
  check_kind(*this, Kind::Boolean, where);
  return integer_ != 0;
}

int64_t Json::integer(const std::string& where) const {
  check_kind(*this, Kind::Integer, where);
  return integer_;
}

double Json::number(const std::string& where) const {
  if (kind_ == Kind::Integer) return static_cast<double>(integer_);
  if (kind_ == Kind::Text && text_ == "inf") return std::numeric_limits<double>::infinity();
  if (kind_ == Kind::Text && text_ == "-inf") return -std::numeric_limits<double>::infinity();
  if (kind_ == Kind::Text && text_ == "nan") return std::numeric_limits<double>::quiet_NaN();
  check_kind(*this, Kind::Number, where);
  return number_;
}

const std::string& Json::text(const std::string& where) const {
  check_kind(*this, Kind::Text, where);
  return text_;
}

const std::vector<Json>& Json::items(const std::string& where) const {
  check_kind(*this, Kind::Array, where);
  return items_;
}

const std::vector<Json::Member>& Json::members(const std::string& where) const {
  check_kind(*this, Kind::Object, where);
  return members_;
}

const Json* Json::find(std::string_view key) const {
  for (const auto& member : members_) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key, const std::string& where) const {
  check_kind(*this, Kind::Object, where);
  const auto* found = find(key);
  check(found != nullptr, ErrorKind::Data, "json", where, ": the key '", key, "' is missing");
  return *found;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) kind_ = Kind::Object;
  check_kind(*this, Kind::Object, std::string(key));
  for (auto& member : members_) {
    if (member.key == key) {
      member.value = std::move(value);
      return *this;
    }
  }
  members_.push_back({std::string(key), std::move(value)});
  return *this;
}

Json& Json::push_back(Json value) {
  if (is_null()) kind_ = Kind::Array;
  check_kind(*this, Kind::Array, "push_back");
  items_.push_back(std::move(value));
  return *this;
}

std::string Json::dump(int indent) const {
  std::string out;
  write(*this, indent, 0, out);
  return out;
}

Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  Builder builder(source, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json load_json(const std::filesystem::path& path) { return parse_json(read_file(path, uint64_t{64} << 20), path.string()); }

void save_json(const std::filesystem::path& path, const Json& value) { write_file_atomic(path, value.dump() + "\n"); }

}  // namespace npu_train
