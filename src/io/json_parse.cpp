// Parses JSON. nlohmann's parser produces events, and this code builds the document from them, so that limits apply before memory is
// allocated.
#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

class JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// With `may_be_cut`, an error at the end of the text (byte `text_bytes`) means that the text is truncated.
  JsonBuilder(const std::string& source, const JsonLimits& limits, bool may_be_cut, size_t text_bytes)
      : source_(source), limits_(limits), may_be_cut_(may_be_cut), text_bytes_(text_bytes) {}

  JsonPrefix take() {
    while (depth_ > 0) close();  // closes containers that truncated text left open
    return {std::move(root_), !cut_};
  }

  [[noreturn]] void fail(const std::string& message) const { throw Error(ErrorKind::Data, "json", source_ + ": " + message); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(static_cast<int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) fail("an integer exceeds 64 bits");
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(static_cast<double>(value)); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    frames_[depth_ - 1].key = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // A position beyond the last byte means that the parser expected more; after a complete document, it means extra text.
    cut_ = may_be_cut_ && position > text_bytes_ && (depth_ > 0 || !has_root_);
    if (!cut_) fail("invalid JSON at byte " + std::to_string(position) + ": " + std::string(e.what()).substr(0, 300));
    return false;
  }

 private:
  /// An open container. Frames are reused by later containers of the same depth, so that each container allocates memory once, and exactly
  /// as much as it needs.
  struct Frame {
    bool is_object = false;
    std::string key;  // key of the next value
    std::vector<Json> items;
    std::vector<Json::Member> members;
  };

  bool open(bool is_object) {
    if (depth_ >= limits_.depth) fail("nested deeper than " + std::to_string(limits_.depth) + " levels");
    if (depth_ == frames_.size()) frames_.emplace_back();
    frames_[depth_++].is_object = is_object;
    return true;
  }

  bool close() {
    auto& frame = frames_[--depth_];
    Json out;
    if (frame.is_object) {
      refuse_repeated_keys(frame.members);
      out.value_ = take_exactly(frame.members);
    } else {
      out.value_ = take_exactly(frame.items);
    }
    return add(std::move(out));
  }

  // Moves the elements out. Few elements move into memory of their exact size, and `from` keeps its capacity for the next container; many
  // elements move together with their memory.
  template <class T>
  static std::vector<T> take_exactly(std::vector<T>& from) {
    constexpr size_t kMany = 1024;
    if (from.size() >= kMany) return std::exchange(from, {});
    std::vector<T> out(std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
    return out;
  }

  void refuse_repeated_keys(const std::vector<Json::Member>& members) const {
    constexpr size_t kFew = 16;
    const auto refuse = [&](std::string_view key) { fail("the key '" + std::string(key.substr(0, 200)) + "' occurs twice"); };
    if (members.size() <= kFew) {
      for (size_t i = 1; i < members.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
          if (members[i].key == members[k].key) refuse(members[i].key);
        }
      }
      return;
    }
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const auto& member : members) keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    const auto found = std::adjacent_find(keys.begin(), keys.end());
    if (found != keys.end()) refuse(*found);
  }

  bool add(Json value) {
    if (++values_ > limits_.values) fail("more than " + with_commas(static_cast<int64_t>(limits_.values)) + " values");
    if (depth_ == 0) {
      root_ = std::move(value);
      has_root_ = true;
    } else if (auto& frame = frames_[depth_ - 1]; frame.is_object) {
      frame.members.push_back({std::move(frame.key), std::move(value)});
    } else {
      frame.items.push_back(std::move(value));
    }
    return true;
  }

  const std::string& source_;
  const JsonLimits& limits_;
  bool may_be_cut_;
  size_t text_bytes_;
  bool cut_ = false;
  Json root_;
  bool has_root_ = false;
  std::vector<Frame> frames_;
  size_t depth_ = 0;
  size_t values_ = 0;
};

namespace {

JsonPrefix build(std::string_view text, const std::string& source, const JsonLimits& limits, bool may_be_cut) {
  JsonBuilder builder(source, limits, may_be_cut, text.size());
  // nlohmann's parser treats a zero byte as the end of the text.
  if (text.find('\0') != std::string_view::npos) builder.fail("contains a zero byte, which JSON does not allow");
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

/// Replaces Python's words for non-finite numbers, and finds the start of a last value that may be incomplete.
class PythonText {
 public:
  explicit PythonText(std::string_view text) : text_(text) { scan(); }

  /// Returns the text with these words replaced by quoted texts.
  std::string_view text() const { return copied_.empty() ? text_ : std::string_view(copied_); }
  /// Returns text() without a number or word at the very end.
  std::string_view without_open_value() const { return text().substr(0, whole_); }

 private:
  static bool is_in_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.';
  }

  // Returns the position after the quoted text that begins at `at`; the end of the text if the quote is not closed.
  size_t behind_text(size_t at) const {
    for (++at; at < text_.size(); ++at) {
      if (text_[at] == '"') return at + 1;
      if (text_[at] == '\\') ++at;
    }
    return text_.size();
  }

  void scan() {
    size_t copied_to = 0, open_word = text_.size();
    const auto replace = [&](size_t at, size_t bytes, const char* with) {
      copied_.append(text_.substr(copied_to, at - copied_to)).append(with);
      copied_to = at + bytes;
    };
    for (size_t at = 0; at < text_.size();) {
      if (text_[at] == '"') {
        at = behind_text(at);
      } else if (!is_in_word(text_[at])) {
        ++at;
      } else {
        const size_t begin = at;
        while (at < text_.size() && is_in_word(text_[at])) ++at;
        const auto word = text_.substr(begin, at - begin);
        if (at == text_.size()) {
          open_word = begin;
        } else if (word == "NaN") {
          replace(begin, word.size(), "\"nan\"");
        } else if (word == "Infinity") {
          replace(begin, word.size(), "\"inf\"");
        } else if (word == "-Infinity") {
          replace(begin, word.size(), "\"-inf\"");
        }
      }
    }
    const auto open_bytes = text_.size() - open_word;
    if (copied_to > 0) copied_.append(text_.substr(copied_to));
    whole_ = text().size() - open_bytes;
  }

  std::string_view text_;
  std::string copied_;
  size_t whole_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  return build(text, source, limits, false).value;
}

Json load_json(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), path.string(), limits);
}

JsonPrefix parse_json_prefix(std::string_view text, const std::string& source, const JsonLimits& limits) {
  text = text.substr(0, text.find_last_not_of('\0') + 1);
  const PythonText python(text);
  const auto whole = python.without_open_value();
  // The document may consist of that number or word alone.
  if (whole.find_first_not_of(" \t\r\n") == std::string_view::npos) return build(python.text(), source, limits, true);
  auto out = build(whole, source, limits, true);
  check(!out.complete || whole.size() == python.text().size(), ErrorKind::Data, "json", source, ": text after the end of the document");
  return out;
}

JsonPrefix load_json_prefix(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json_prefix(read_file(path, limits.max_bytes), path.string(), limits);
}

}  // namespace npu_train
