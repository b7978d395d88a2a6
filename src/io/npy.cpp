#include "npu_train/io/npy.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <numeric>
#include <vector>

#include "io/tensor_size.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kLargestNpyHeader = uint64_t{1} << 16;

constexpr std::array<std::pair<const char*, at::ScalarType>, 9> kNpyTypes = {{{"<f8", at::kDouble},
                                                                              {"<f4", at::kFloat},
                                                                              {"<f2", at::kHalf},
                                                                              {"<i8", at::kLong},
                                                                              {"<i4", at::kInt},
                                                                              {"<i2", at::kShort},
                                                                              {"|i1", at::kChar},
                                                                              {"|u1", at::kByte},
                                                                              {"|b1", at::kBool}}};

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Reads the header's Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header parse() {
    Header out;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        require(peek() == '\'' || peek() == '"', "holds records, not one plain dtype");
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
    require(peek() == '\0' && at_ >= text_.size(), "has text behind its header");
    require(has_descr && has_order && has_shape, "misses descr, fortran_order or shape in its header");
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
  void expect(char c) { require(accept(c), std::string("misses '") + c + "' in its header"); }
  std::string quoted() {
    const char quote = peek();
    require(quote == '\'' || quote == '"', "misses a quoted word in its header");
    const auto end = text_.find(quote, at_ + 1);
    require(end != std::string_view::npos, "has an open quote in its header");
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
    require(false, "misses True or False in its header");
    return false;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!accept(')')) {
      peek();
      int64_t value = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      require(error == std::errc() && value >= 0 && out.size() < 64, "has a shape that cannot be read");
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

void save_npy(const std::filesystem::path& path, const at::Tensor& tensor) {
  check(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), ErrorKind::Usage, "npy", path.string(),
        ": not a dense tensor");
  const auto type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(), [&](const auto& t) { return t.second == tensor.scalar_type(); });
  check(type != kNpyTypes.end(), ErrorKind::Usage, "npy", path.string(), ": NumPy has no dtype ", c10::toString(tensor.scalar_type()),
        "; hint: convert the tensor to float32 first");
  std::string shape;
  for (const auto extent : tensor.sizes()) shape += std::to_string(extent) + ", ";
  if (tensor.dim() > 1) shape.resize(shape.size() - 2);
  if (tensor.dim() == 1) shape.pop_back();
  std::string header = std::string("{'descr': '") + type->first + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The data begins at a multiple of 64.
  const size_t before = kMagic.size() + 4;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  translated("npy", [&] {
    const auto host = tensor.detach().cpu().contiguous();
    AtomicFile file(path);
    file.write(kMagic);
    file.write(std::string_view("\x01\x00", 2));
    file.write(&length, sizeof length);
    file.write(header);
    file.write(host.const_data_ptr(), host.nbytes());
    file.commit();
  });
}

at::Tensor load_npy(const std::filesystem::path& path) {
  const ReadableFile file(path, ErrorKind::Data);
  const auto name = path.string();
  check(file.size() >= 12, ErrorKind::Data, "npy", name, ": only ", file.size(), " bytes; this is not a .npy file");
  const auto start = file.read(0, 12);
  check(start.starts_with(kMagic), ErrorKind::Data, "npy", name, ": does not begin as a .npy file does");
  const int version = static_cast<unsigned char>(start[6]);
  check(version >= 1 && version <= 3, ErrorKind::Data, "npy", name, ": format version ", version, "; known: 1 to 3");
  uint64_t length = 0;
  const uint64_t prefix = version == 1 ? 10 : 12;
  std::memcpy(&length, start.data() + 8, prefix - 8);
  check(length <= kLargestNpyHeader, ErrorKind::Data, "npy", name, ": a header of ", length, " bytes; allowed: at most ",
        kLargestNpyHeader);
  const auto text = file.read(prefix, length);
  const auto header = HeaderParser(text, name).parse();

  const auto& descr = header.descr;
  const auto type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(), [&](const auto& t) {
    return descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') && descr.ends_with(t.first + 1);
  });
  check(type != kNpyTypes.end(), ErrorKind::Data, "npy", name, ": dtype '", descr.substr(0, 20),
        "'; known: little-endian f8 f4 f2 i8 i4 i2 and i1 u1 b1; hint: save it with another dtype (objects are never read)");
  const auto bytes = detail::byte_count(header.shape, c10::elementSize(type->second));
  const auto room = file.size() - prefix - length;
  check(bytes && *bytes == room, ErrorKind::Data, "npy", name, ": ", room, " bytes of data; the shape needs ",
        bytes ? std::to_string(*bytes) : "more than any memory");
  return translated("npy", [&] {
    auto shape = header.shape;
    if (header.fortran_order) std::reverse(shape.begin(), shape.end());
    auto out = at::empty(shape, at::TensorOptions().dtype(type->second));
    file.read(prefix + length, out.mutable_data_ptr(), out.nbytes());
    if (type->second == at::kBool) detail::make_bools(out.mutable_data_ptr(), out.nbytes());
    if (!header.fortran_order) return out;
    std::vector<int64_t> backwards(shape.size());
    std::iota(backwards.rbegin(), backwards.rend(), int64_t{0});
    return out.permute(backwards).contiguous();
  });
}

}  // namespace npu_train
