#include "io/tensors/npy_header.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "io/tensors/tensor_size.hpp"

namespace npu_train::detail {
namespace {

constexpr uint64_t kLargestNpyHeader = uint64_t{1} << 16;

struct NpyLiteral {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Reads the header's Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  NpyLiteral parse() {
    NpyLiteral out;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        require(peek() == '\'' || peek() == '"', "contains records, not a plain dtype");
        out.descr = quoted();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        out.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        out.shape = tuple();
        has_shape = true;
      } else {
        require(false, "has the unknown or repeated key '" + key.substr(0, 40) + "' in its header");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    require(peek() == '\0' && at_ >= text_.size(), "has text after its header");
    require(has_descr && has_order && has_shape, "has no descr, fortran_order or shape in its header");
    return out;
  }

 private:
  void require(bool ok, const std::string& what) const {
    check(ok, ErrorKind::Data, "npy", path_, ": ", what, "; hint: the file is damaged or not a plain .npy array");
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) { require(accept(c), std::string("lacks '") + c + "' in its header"); }
  std::string quoted() {
    const char quote = peek();
    require(quote == '\'' || quote == '"', "lacks a quoted word in its header");
    const auto end = text_.find(quote, at_ + 1);
    require(end != std::string_view::npos, "has an unterminated quote in its header");
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    require(false, "lacks True or False in its header");
    return false;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!accept(')')) {
      peek();
      int64_t value = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      require(error == std::errc() && value >= 0 && out.size() < 64, "has an invalid shape");
      at_ = static_cast<size_t>(end - text_.data());
      out.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

NpyHeader read_npy_header(const ReadableFile& file) {
  const auto name = file.path().string();
  check(file.size() >= 12, ErrorKind::Data, "npy", name, ": only ", file.size(), " bytes; not a .npy file");
  const auto start = file.read(0, 12);
  check(start.starts_with(kNpyMagic), ErrorKind::Data, "npy", name, ": does not begin like a .npy file");
  const int version = static_cast<unsigned char>(start[6]);
  check(version >= 1 && version <= 3, ErrorKind::Data, "npy", name, ": format version ", version, "; supported: 1 to 3");
  uint64_t length = 0;
  const uint64_t prefix = version == 1 ? 10 : 12;
  std::memcpy(&length, start.data() + 8, prefix - 8);
  check(length <= kLargestNpyHeader, ErrorKind::Data, "npy", name, ": the header has ", length, " bytes; allowed: at most ",
        kLargestNpyHeader);
  const auto text = file.read(prefix, length);
  const auto header = NpyHeaderParser(text, name).parse();

  const auto& descr = header.descr;
  const auto type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(), [&](const auto& t) {
    return descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') && descr.ends_with(t.first + 1);
  });
  check(type != kNpyTypes.end(), ErrorKind::Data, "npy", name, ": dtype '", descr.substr(0, 20),
        "'; supported: little-endian f8 f4 f2 i8 i4 i2 and i1 u1 b1; hint: save it with another dtype (objects are never read)");
  const auto bytes = byte_count(header.shape, c10::elementSize(type->second));
  const auto room = file.size() - prefix - length;
  check(bytes && *bytes == room, ErrorKind::Data, "npy", name, ": ", room, " bytes of data; the shape requires ",
        bytes ? std::to_string(*bytes) : "more than any memory");
  return {type->second, header.fortran_order, header.shape, prefix + length};
}

}  // namespace npu_train::detail
