#include "npu_train/io/safetensors.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "io/tensors/tensor_size.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian, and are written with the byte order of memory");

constexpr uint64_t kLargestHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<const char*, at::ScalarType>, 10> kDtypes = {{{"F64", at::kDouble},
                                                                             {"F32", at::kFloat},
                                                                             {"F16", at::kHalf},
                                                                             {"BF16", at::kBFloat16},
                                                                             {"I64", at::kLong},
                                                                             {"I32", at::kInt},
                                                                             {"I16", at::kShort},
                                                                             {"I8", at::kChar},
                                                                             {"U8", at::kByte},
                                                                             {"BOOL", at::kBool}}};
// Dtypes of the format that are not supported here.
constexpr std::array kOtherDtypes = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3",
                                     "F6_E3M2", "F4",      "U16",     "U32",         "U64",         "C64"};

const char* type_code(at::ScalarType dtype, const std::string& name) {
  for (const auto& [code, type] : kDtypes) {
    if (type == dtype) return code;
  }
  throw Error(ErrorKind::Usage, "safetensors",
              "'" + name + "' has the dtype " + c10::toString(dtype) + ", which the format does not support");
}

/// Reads a header. Errors have the kind and the path of the file.
class HeaderReader {
 public:
  explicit HeaderReader(const ReadableFile& file) : file_(file) {}

  void read(std::vector<std::string>& names, std::unordered_map<std::string, TensorInfo>& infos,
            std::map<std::string, std::string>& metadata) {
    const auto header = header_text();
    Json json;
    try {
      json = parse_json(header, "header", {.depth = 4, .values = 4'000'000});
      for (const auto& [name, value] : json.members("header")) {
        if (name == kMetadata) {
          for (const auto& [key, text] : value.members(kMetadata)) metadata.emplace(key, text.text(kMetadata));
        } else {
          infos.emplace(name, tensor_info(name, value));
          names.push_back(name);
        }
      }
    } catch (const Error& e) {
      if (e.kind() == file_.kind() && e.where() == "safetensors") throw;
      throw Error(file_.kind(), "safetensors", file_.path().string() + ": " + e.what(), "the file is damaged; use another copy",
                  std::current_exception());
    }
    check_ranges(names, infos);
  }

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    check(ok, file_.kind(), "safetensors", file_.path().string(), ": ", parts...,
          "; hint: the file is damaged or not a safetensors file; use another copy");
  }

  std::string header_text() {
    require(file_.size() >= 8, "only ", file_.size(), " bytes");
    uint64_t length = 0;
    file_.read(0, &length, sizeof length);
    require(length <= kLargestHeader, "the header claims ", length, " bytes; allowed: at most ", kLargestHeader);
    require(length >= 2 && length <= file_.size() - 8, "the header claims ", length, " bytes in a file of ", file_.size());
    data_begin_ = 8 + length;
    auto text = file_.read(8, length);
    require(text[0] == '{', "the header does not begin with '{'");
    return text;
  }

  TensorInfo tensor_info(const std::string& name, const Json& json) const {
    const auto& code = json.at("dtype", name).text(name + ".dtype");
    const auto type = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& t) { return code == t.first; });
    if (type == kDtypes.end()) {
      const bool known = std::find(kOtherDtypes.begin(), kOtherDtypes.end(), code) != kOtherDtypes.end();
      throw Error(file_.kind(), "safetensors",
                  file_.path().string() + ": '" + name + "' has the dtype '" + code.substr(0, 20) +
                      "', which is not read; supported: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
                  known ? "in Python, save the tensors converted: tensor.to(torch.float32), F8 with the scale that its network applies"
                        : "the file is damaged or not a safetensors file; use another copy");
    }
    TensorInfo info{type->second, {}, 0, 0};
    for (const auto& extent : json.at("shape", name).items(name + ".shape")) {
      info.shape.push_back(extent.integer(name + ".shape"));
      require(info.shape.back() >= 0, "'", name, "' has a negative extent in its shape");
    }
    const auto bytes = detail::byte_count(info.shape, c10::elementSize(info.dtype));
    require(bytes.has_value(), "the shape of '", name, "' is larger than any memory");
    const auto& offsets = json.at("data_offsets", name).items(name + ".data_offsets");
    require(offsets.size() == 2, "'", name, "' has ", offsets.size(), " data_offsets; there must be two");
    const auto begin = offsets[0].integer(name + ".data_offsets");
    const auto end = offsets[1].integer(name + ".data_offsets");
    const auto room = static_cast<int64_t>(file_.size() - data_begin_);
    require(begin >= 0 && begin <= end && end <= room, "'", name, "' occupies bytes ", begin, " to ", end, " of ", room, " bytes of data");
    require(static_cast<uint64_t>(end - begin) == *bytes, "'", name, "' has ", end - begin, " bytes of data; its shape requires ", *bytes);
    info.begin = data_begin_ + static_cast<uint64_t>(begin);
    info.end = data_begin_ + static_cast<uint64_t>(end);
    return info;
  }

  // Checks that the ranges follow each other without gaps up to the end of the file.
  void check_ranges(const std::vector<std::string>& names, const std::unordered_map<std::string, TensorInfo>& infos) const {
    std::vector<std::pair<std::pair<uint64_t, uint64_t>, const std::string*>> ranges;
    for (const auto& name : names) ranges.push_back({{infos.at(name).begin, infos.at(name).end}, &name});
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    uint64_t at = data_begin_;
    for (const auto& [range, name] : ranges) {
      require(range.first == at, "'", *name, "' ", range.first < at ? "overlaps the previous tensor" : "is preceded by a gap");
      at = range.second;
    }
    require(at == file_.size(), file_.size() - at, " bytes after the last tensor belong to no tensor");
  }

  const ReadableFile& file_;
  uint64_t data_begin_ = 0;
};

// Returns the order of the data: wider elements first, otherwise as given.
std::vector<size_t> data_order(const NamedTensors& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].second.element_size() > tensors[b].second.element_size(); });
  return order;
}

std::string make_header(const NamedTensors& tensors, const std::vector<size_t>& order, const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges(tensors.size());
  uint64_t at = 0;
  for (const auto i : order) {
    ranges[i] = {at, at + tensors[i].second.nbytes()};
    at = ranges[i].second;
  }
  std::vector<std::pair<std::string, Json>> members;
  if (!metadata.empty()) {
    std::vector<std::pair<std::string, Json>> texts;
    for (const auto& [key, text] : metadata) texts.emplace_back(key, text);
    members.emplace_back(kMetadata, Json::object(std::move(texts)));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    std::vector<Json> shape;
    for (const auto extent : tensor.sizes()) shape.emplace_back(extent);
    members.emplace_back(
        name,
        Json::object({{"dtype", type_code(tensor.scalar_type(), name)},
                      {"shape", Json::array(std::move(shape))},
                      {"data_offsets", Json::array({static_cast<int64_t>(ranges[i].first), static_cast<int64_t>(ranges[i].second)})}}));
  }
  auto header = Json::object(std::move(members)).dump(0);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

void check_tensors(const NamedTensors& tensors) {
  std::unordered_map<std::string, bool> seen;
  for (const auto& [name, tensor] : tensors) {
    check(name != kMetadata, ErrorKind::Usage, "safetensors", "a tensor cannot have the name ", kMetadata);
    check(seen.emplace(name, true).second, ErrorKind::Usage, "safetensors", "'", name, "' occurs twice; names must be unique");
    check(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), ErrorKind::Usage, "safetensors", "'", name,
          "' is not a dense tensor");
    type_code(tensor.scalar_type(), name);
  }
}

}  // namespace

bool is_safetensors_name(const std::filesystem::path& path) { return to_lower(path.extension().string()) == ".safetensors"; }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, ErrorKind kind) : file_(path, kind) {
  HeaderReader(file_).read(names_, infos_, metadata_);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = infos_.find(name);
  if (found != infos_.end()) return found->second;
  const auto near = nearest_name(name, names_);
  throw Error(file_.kind(), "safetensors",
              path().string() + ": there is no tensor '" + name + "'" + (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto& wanted = info(name);
  return translated("safetensors", [&] {
    auto out = at::empty(wanted.shape, at::TensorOptions().dtype(wanted.dtype));
    // Reads instead of mapping the file, because the truncation of a mapped file would end the process.
    file_.read(wanted.begin, out.mutable_data_ptr(), out.nbytes());
    if (wanted.dtype == at::kBool) detail::make_bools(out.mutable_data_ptr(), out.nbytes());
    return out;
  });
}

WrittenFile save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata) {
  check_tensors(tensors);
  const auto order = data_order(tensors);
  const auto header = make_header(tensors, order, metadata);
  check(header.size() <= kLargestHeader, ErrorKind::Usage, "safetensors", path.string(), ": the header with the names has ", header.size(),
        " bytes; allowed: at most ", kLargestHeader);
  return translated("safetensors", [&] {
    AtomicFile file(path);
    const uint64_t length = header.size();
    file.write(&length, sizeof length);
    file.write(header);
    for (const auto i : order) {
      const auto host = tensors[i].second.detach().cpu().contiguous();
      file.write(host.const_data_ptr(), host.nbytes());
    }
    file.commit();
    return WrittenFile{file.size(), file.checksum()};
  });
}

NamedTensors load_safetensors(const std::filesystem::path& path, ErrorKind kind) {
  const SafetensorsFile file(path, kind);
  NamedTensors out;
  for (const auto& name : file.names()) out.emplace_back(name, file.tensor(name));
  return out;
}

}  // namespace npu_train
