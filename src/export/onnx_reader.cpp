#include "export/onnx_reader.hpp"

#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <set>
#include <string>
#include <utility>

#include "export/onnx_proto.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/export/onnx_metadata.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::onnx {
namespace {

using protozero::pbf_reader;

constexpr uint64_t kMaxModelBytes = uint64_t{1} << 31;  // limit of protocol buffers

// Moves to the next length-delimited field with this number. Skips fields with another wire type, which a damaged file may have.
template <class Field>
bool next_of(pbf_reader& in, Field field) {
  return in.next(static_cast<protozero::pbf_tag_type>(field), protozero::pbf_wire_type::length_delimited);
}

std::string entry_text(pbf_reader in, proto::EntryField field) {
  std::string out;
  while (next_of(in, field)) out = in.get_string();
  return out;
}

std::pair<std::string, std::string> entry_of(const pbf_reader& in) {
  return {entry_text(in, proto::EntryField::Key), entry_text(in, proto::EntryField::Value)};
}

std::vector<std::pair<std::string, std::string>> entries_of(const std::string& model) {
  std::vector<std::pair<std::string, std::string>> out;
  for (pbf_reader in(model); next_of(in, proto::ModelField::MetadataProps);) out.push_back(entry_of(in.get_message()));
  return out;
}

// Returns the files with initializers outside the model's file.
std::set<std::string> locations_of(const std::string& model) {
  std::set<std::string> out;
  for (pbf_reader in(model); next_of(in, proto::ModelField::Graph);)
    for (auto graph = in.get_message(); next_of(graph, proto::GraphField::Initializer);)
      for (auto tensor = graph.get_message(); next_of(tensor, proto::TensorField::ExternalData);)
        if (auto [key, value] = entry_of(tensor.get_message()); key == "location") out.insert(std::move(value));
  return out;
}

}  // namespace

std::vector<std::filesystem::path> data_files_of(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return out;
  try {
    const auto prefix = path.filename().string() + ".";
    for (const auto& name : locations_of(read_file(path, kMaxModelBytes)))
      if (name.starts_with(prefix) && name.ends_with(".data") && name.find('/') == std::string::npos)
        out.push_back(path.parent_path() / name);
  } catch (const std::exception&) {
    out.clear();  // write_onnx has not written this model
  }
  return out;
}

}  // namespace npu_train::onnx

namespace npu_train {

std::vector<std::pair<std::string, std::string>> onnx_metadata(const std::filesystem::path& file) {
  constexpr const char* kMetadata = "onnx_metadata";
  return translated(kMetadata, [&] {
    const auto model = read_file(file, onnx::kMaxModelBytes);
    try {
      return onnx::entries_of(model);
    } catch (const protozero::exception& e) {
      throw Error(ErrorKind::Data, kMetadata, file.string() + ": is damaged, or is not an ONNX model: " + e.what());
    }
  });
}

}  // namespace npu_train
