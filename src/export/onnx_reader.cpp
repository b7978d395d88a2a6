#include "export/onnx_reader.hpp"

#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/whole_number.hpp"
#include "npu_train/export/onnx_metadata.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::onnx {
namespace {

using protozero::pbf_reader;

constexpr uint64_t kMaxModelBytes = uint64_t{1} << 31;  // limit of protocol buffers

// A tensor as stored in the file.
struct StoredTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  Ints dims;
  std::optional<std::string> raw;
  std::map<std::string, std::string> external;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), bytes_(read_file(path, kMaxModelBytes)) {}

  OnnxModel model() {
    OnnxModel out;
    bool has_graph = false;
    for (pbf_reader in(bytes_); in.next();) switch (static_cast<proto::ModelField>(in.tag())) {
        case proto::ModelField::Graph:
          has_graph = true;
          read_graph(in.get_message(), out);
          break;
        case proto::ModelField::OpsetImport:
          out.opset = opset(in.get_message());
          break;
        case proto::ModelField::MetadataProps:
          out.metadata.push_back(entry(in.get_message()));
          break;
        default:
          in.skip();
      }
    check(has_graph, ErrorKind::Data, "run_onnx", path_.string(), ": contains no graph; it is not an ONNX model");
    return out;
  }

  std::vector<std::pair<std::string, std::string>> metadata() {
    std::vector<std::pair<std::string, std::string>> out;
    for (pbf_reader in(bytes_); in.next(static_cast<protozero::pbf_tag_type>(proto::ModelField::MetadataProps));)
      out.push_back(entry(in.get_message()));
    return out;
  }

  // Returns the files with initializers outside the model's file.
  std::set<std::string> locations() {
    std::set<std::string> out;
    for (pbf_reader in(bytes_); in.next(static_cast<protozero::pbf_tag_type>(proto::ModelField::Graph));) {
      for (auto graph = in.get_message(); graph.next(static_cast<protozero::pbf_tag_type>(proto::GraphField::Initializer));) {
        const auto stored = tensor(graph.get_message());
        if (const auto found = stored.external.find("location"); found != stored.external.end()) out.insert(found->second);
      }
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::Data, "run_onnx", path_.string() + ": " + what,
                "this reader is for files that npu_tool export writes; use onnxruntime for others");
  }

  void read_graph(pbf_reader in, OnnxModel& out) {
    while (in.next()) switch (static_cast<proto::GraphField>(in.tag())) {
        case proto::GraphField::Node:
          out.nodes.push_back(node(in.get_message()));
          break;
        case proto::GraphField::Initializer: {
          auto stored = tensor(in.get_message());
          at::Tensor value = elements(stored);
          out.initializers.emplace_back(std::move(stored.name), std::move(value));
          break;
        }
        case proto::GraphField::Input:
          out.inputs.push_back(value(in.get_message()));
          break;
        case proto::GraphField::Output:
          out.outputs.push_back(value(in.get_message()));
          break;
        default:
          in.skip();
      }
  }

  int64_t opset(pbf_reader in) const {
    int64_t version = 0;
    while (in.next()) switch (static_cast<proto::OperatorSetField>(in.tag())) {
        case proto::OperatorSetField::Domain:
          if (in.get_string() != "") refuse("uses operators of another domain");
          break;
        case proto::OperatorSetField::Version:
          version = in.get_int64();
          break;
        default:
          in.skip();
      }
    return version;
  }

  static std::pair<std::string, std::string> entry(pbf_reader in) {
    std::pair<std::string, std::string> out;
    while (in.next()) switch (static_cast<proto::EntryField>(in.tag())) {
        case proto::EntryField::Key:
          out.first = in.get_string();
          break;
        case proto::EntryField::Value:
          out.second = in.get_string();
          break;
        default:
          in.skip();
      }
    return out;
  }

  Node node(pbf_reader in) {
    Node out;
    while (in.next()) switch (static_cast<proto::NodeField>(in.tag())) {
        case proto::NodeField::Input:
          out.inputs.push_back(in.get_string());
          break;
        case proto::NodeField::Output:
          out.outputs.push_back(in.get_string());
          break;
        case proto::NodeField::Name:
          out.name = in.get_string();
          break;
        case proto::NodeField::OpType:
          out.op = in.get_string();
          break;
        case proto::NodeField::Attribute:
          out.attributes.push_back(attribute(in.get_message()));
          break;
        case proto::NodeField::Domain:
          if (in.get_string() != "") refuse("the node '" + out.name + "' is an operator of another domain");
          break;
        default:
          in.skip();
      }
    return out;
  }

  std::pair<std::string, Attribute> attribute(pbf_reader in) {
    std::string name;
    Attribute value = Ints();
    while (in.next()) switch (static_cast<proto::AttributeField>(in.tag())) {
        case proto::AttributeField::Name:
          name = in.get_string();
          break;
        case proto::AttributeField::Float:
          value = static_cast<double>(in.get_float());
          break;
        case proto::AttributeField::Int:
          value = in.get_int64();
          break;
        case proto::AttributeField::String:
          value = in.get_string();
          break;
        case proto::AttributeField::Tensor:
          value = elements(tensor(in.get_message()));
          break;
        case proto::AttributeField::Ints:
          if (in.wire_type() == protozero::pbf_wire_type::length_delimited)
            for (const auto i : in.get_packed_int64()) std::get<Ints>(value).push_back(i);
          else
            std::get<Ints>(value).push_back(in.get_int64());
          break;
        default:
          in.skip();
      }
    return {name, value};
  }

  StoredTensor tensor(pbf_reader in) const {
    StoredTensor out;
    while (in.next()) switch (static_cast<proto::TensorField>(in.tag())) {
        case proto::TensorField::Dims:
          if (in.wire_type() == protozero::pbf_wire_type::length_delimited)
            for (const auto size : in.get_packed_int64()) out.dims.push_back(size);
          else
            out.dims.push_back(in.get_int64());
          break;
        case proto::TensorField::DataType:
          out.type = scalar_type(in.get_int32(), path_.string());
          break;
        case proto::TensorField::Name:
          out.name = in.get_string();
          break;
        case proto::TensorField::RawData:
          out.raw = in.get_bytes();
          break;
        case proto::TensorField::ExternalData:
          out.external.insert(entry(in.get_message()));
          break;
        default:
          in.skip();
      }
    return out;
  }

  at::Tensor elements(const StoredTensor& stored) {
    uint64_t bytes = c10::elementSize(stored.type);
    for (const auto size : stored.dims) {
      if (size < 0 || (size > 0 && bytes > (uint64_t{1} << 48) / static_cast<uint64_t>(size)))
        refuse("the tensor '" + stored.name + "' has an impossible size");
      bytes *= static_cast<uint64_t>(size);
    }
    if (!stored.external.empty()) return external(stored, bytes);
    if (!stored.raw) refuse("the tensor '" + stored.name + "' is not stored as raw bytes");
    if (stored.raw->size() != bytes)
      refuse(str_cat("the tensor '", stored.name, "' has ", stored.raw->size(), " bytes; its shape requires ", bytes));
    at::Tensor out = at::empty(stored.dims, at::TensorOptions(stored.type));
    if (bytes > 0) std::memcpy(out.mutable_data_ptr(), stored.raw->data(), bytes);
    return out;
  }

  at::Tensor external(const StoredTensor& stored, uint64_t bytes) {
    const auto external_entry = [&](const char* key) -> const std::string& {
      const auto found = stored.external.find(key);
      if (found == stored.external.end()) refuse("the external data of '" + stored.name + "' have no " + key);
      return found->second;
    };
    const auto number = [&](const char* key) {
      const auto value = whole_number(external_entry(key));
      if (!value || *value < 0) refuse("the external data of '" + stored.name + "' have the " + key + " '" + external_entry(key) + "'");
      return static_cast<uint64_t>(*value);
    };
    const auto& location = external_entry("location");
    const uint64_t offset = number("offset"), length = number("length");
    if (length != bytes) refuse(str_cat("the tensor '", stored.name, "' has ", length, " bytes; its shape requires ", bytes));
    auto& file = files_[location];
    if (!file) file = std::make_unique<ReadableFile>(safe_join(folder(), location));
    if (offset > file->size() || bytes > file->size() - offset)
      refuse(str_cat("the tensor '", stored.name, "' ends beyond the end of ", location));
    at::Tensor out = at::empty(stored.dims, at::TensorOptions(stored.type));
    if (bytes > 0) file->read(offset, out.mutable_data_ptr(), bytes);
    return out;
  }

  Value value(pbf_reader in) const {
    Value out;
    while (in.next()) switch (static_cast<proto::ValueInfoField>(in.tag())) {
        case proto::ValueInfoField::Name:
          out.name = in.get_string();
          break;
        case proto::ValueInfoField::Type:
          for (auto type = in.get_message(); type.next(static_cast<protozero::pbf_tag_type>(proto::TypeField::Tensor));)
            read_type(type.get_message(), out);
          break;
        default:
          in.skip();
      }
    return out;
  }

  void read_type(pbf_reader in, Value& out) const {
    while (in.next()) switch (static_cast<proto::TensorTypeField>(in.tag())) {
        case proto::TensorTypeField::ElementType:
          out.type = scalar_type(in.get_int32(), path_.string());
          break;
        case proto::TensorTypeField::Shape:
          for (auto shape = in.get_message(); shape.next(static_cast<protozero::pbf_tag_type>(proto::ShapeField::Dim));)
            out.dims.push_back(dim(shape.get_message()));
          break;
        default:
          in.skip();
      }
  }

  static Dim dim(pbf_reader in) {
    Dim out;
    while (in.next()) switch (static_cast<proto::DimField>(in.tag())) {
        case proto::DimField::Value:
          out.size = in.get_int64();
          break;
        case proto::DimField::Param:
          out.name = in.get_string();
          break;
        default:
          in.skip();
      }
    return out;
  }

  std::filesystem::path folder() const { return path_.has_parent_path() ? path_.parent_path() : std::filesystem::path("."); }

  std::filesystem::path path_;
  std::string bytes_;
  std::map<std::string, std::unique_ptr<ReadableFile>> files_;
};

template <class Use>
auto read(const char* where, const std::filesystem::path& path, const Use& use) {
  return translated(where, [&] {
    try {
      return use(Reader(path));
    } catch (const protozero::exception& e) {
      throw Error(ErrorKind::Data, where, path.string() + ": is damaged, or is not an ONNX model: " + e.what());
    }
  });
}

}  // namespace

OnnxModel read_onnx(const std::filesystem::path& path) {
  return read("run_onnx", path, [](Reader reader) { return reader.model(); });
}

std::vector<std::filesystem::path> data_files_of(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return out;
  try {
    const auto prefix = path.filename().string() + ".";
    for (const auto& name : Reader(path).locations())
      if (name.starts_with(prefix) && name.ends_with(".data") && name.find('/') == std::string::npos)
        out.push_back(path.parent_path() / name);
  } catch (const std::exception&) {
    out.clear();  // not a model written by write_onnx
  }
  return out;
}

}  // namespace npu_train::onnx

namespace npu_train {

std::vector<std::pair<std::string, std::string>> onnx_metadata(const std::filesystem::path& file) {
  return onnx::read("onnx_metadata", file, [](onnx::Reader reader) { return reader.metadata(); });
}

}  // namespace npu_train
