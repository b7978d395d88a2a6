#include "export/onnx_writer.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <protozero/pbf_writer.hpp>

#include "export/onnx_reader.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::onnx {
namespace {

using protozero::pbf_writer;

// Page size, so that a runtime may map the weights into memory.
constexpr uint64_t kAlignment = 4096;
constexpr uint64_t kSmallestExternal = 1024;

// Location of an initializer's elements in the data file.
struct Place {
  uint64_t offset, bytes;
};
struct DataFile {
  std::string name;
  std::vector<std::optional<Place>> places;  // place of each initializer; nullopt: in the model's file
};

template <class Field>
constexpr protozero::pbf_tag_type tag(Field field) {
  return static_cast<protozero::pbf_tag_type>(field);
}

at::Tensor on_host(const at::Tensor& t) { return t.detach().to(at::kCPU).contiguous(); }

// Returns the IR version: 8 for ONNX 1.10 (opset 15) to 1.13 (18), 9 for 1.14 and 1.15 (19, 20).
int64_t ir_version(int64_t opset) { return opset <= 18 ? 8 : 9; }

void write_entry(pbf_writer& owner, protozero::pbf_tag_type field, const std::string& key, const std::string& value) {
  pbf_writer entry(owner, field);
  entry.add_string(tag(proto::EntryField::Key), key);
  entry.add_string(tag(proto::EntryField::Value), value);
}

void write_tensor(pbf_writer& out, const std::string& name, const at::Tensor& tensor, const DataFile* data, size_t index) {
  using Field = proto::TensorField;
  for (const auto size : tensor.sizes()) out.add_int64(tag(Field::Dims), size);
  out.add_int32(tag(Field::DataType), static_cast<int32_t>(data_type(tensor.scalar_type(), "'" + name + "'")));
  if (!name.empty()) out.add_string(tag(Field::Name), name);
  if (data != nullptr && data->places[index]) {
    const auto field = tag(Field::ExternalData);
    write_entry(out, field, "location", data->name);
    write_entry(out, field, "offset", std::to_string(data->places[index]->offset));
    write_entry(out, field, "length", std::to_string(data->places[index]->bytes));
    out.add_enum(tag(Field::DataLocation), static_cast<int32_t>(proto::DataLocation::External));
  } else {
    const at::Tensor host = on_host(tensor);
    out.add_bytes(tag(Field::RawData), static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
}

struct AttributeWriter {
  pbf_writer& out;
  void operator()(int64_t value) const {
    out.add_int64(tag(proto::AttributeField::Int), value);
    type(proto::AttributeType::Int);
  }
  void operator()(double value) const {
    out.add_float(tag(proto::AttributeField::Float), static_cast<float>(value));
    type(proto::AttributeType::Float);
  }
  void operator()(const std::string& value) const {
    out.add_bytes(tag(proto::AttributeField::String), value);
    type(proto::AttributeType::String);
  }
  void operator()(const Ints& values) const {
    for (const auto value : values) out.add_int64(tag(proto::AttributeField::Ints), value);
    type(proto::AttributeType::Ints);
  }
  void operator()(const at::Tensor& value) const {
    {
      pbf_writer tensor(out, tag(proto::AttributeField::Tensor));
      write_tensor(tensor, "", value, nullptr, 0);
    }
    type(proto::AttributeType::Tensor);
  }
  void type(proto::AttributeType t) const { out.add_enum(tag(proto::AttributeField::Type), static_cast<int32_t>(t)); }
};

void write_node(pbf_writer& graph, const Node& node) {
  using Field = proto::NodeField;
  pbf_writer out(graph, tag(proto::GraphField::Node));
  for (const auto& name : node.inputs) out.add_string(tag(Field::Input), name);
  for (const auto& name : node.outputs) out.add_string(tag(Field::Output), name);
  out.add_string(tag(Field::Name), node.name);
  out.add_string(tag(Field::OpType), node.op);
  for (const auto& [name, value] : node.attributes) {
    pbf_writer attribute(out, tag(Field::Attribute));
    attribute.add_string(tag(proto::AttributeField::Name), name);
    std::visit(AttributeWriter{attribute}, value);
  }
}

void write_value(pbf_writer& graph, proto::GraphField field, const Value& value) {
  pbf_writer out(graph, tag(field));
  out.add_string(tag(proto::ValueInfoField::Name), value.name);
  pbf_writer type(out, tag(proto::ValueInfoField::Type));
  pbf_writer tensor(type, tag(proto::TypeField::Tensor));
  tensor.add_int32(tag(proto::TensorTypeField::ElementType), static_cast<int32_t>(data_type(value.type, "'" + value.name + "'")));
  pbf_writer shape(tensor, tag(proto::TensorTypeField::Shape));
  for (const auto& dim : value.dims) {
    pbf_writer one(shape, tag(proto::ShapeField::Dim));
    if (dim.name.empty())
      one.add_int64(tag(proto::DimField::Value), dim.size);
    else
      one.add_string(tag(proto::DimField::Param), dim.name);
  }
}

void write_graph(pbf_writer& model, const OnnxModel& m, const DataFile* data) {
  pbf_writer graph(model, tag(proto::ModelField::Graph));
  graph.add_string(tag(proto::GraphField::Name), "main");
  for (const auto& node : m.nodes) write_node(graph, node);
  for (size_t i = 0; i < m.initializers.size(); ++i) {
    pbf_writer tensor(graph, tag(proto::GraphField::Initializer));
    write_tensor(tensor, m.initializers[i].first, m.initializers[i].second, data, i);
  }
  for (const auto& value : m.inputs) write_value(graph, proto::GraphField::Input, value);
  for (const auto& value : m.outputs) write_value(graph, proto::GraphField::Output, value);
}

std::string encoded(const OnnxModel& m, const DataFile* data) {
  std::string out;
  pbf_writer model(out);
  model.add_int64(tag(proto::ModelField::IrVersion), ir_version(m.opset));
  model.add_string(tag(proto::ModelField::ProducerName), "npu_train");
  model.add_string(tag(proto::ModelField::ProducerVersion), NPU_TRAIN_VERSION);
  write_graph(model, m, data);
  {
    pbf_writer set(model, tag(proto::ModelField::OpsetImport));
    set.add_string(tag(proto::OperatorSetField::Domain), "");
    set.add_int64(tag(proto::OperatorSetField::Version), m.opset);
  }
  for (const auto& [key, value] : m.metadata) write_entry(model, tag(proto::ModelField::MetadataProps), key, value);
  return out;
}

DataFile place_weights(const std::filesystem::path& path, const OnnxModel& model) {
  DataFile data;
  Hasher hash;
  uint64_t end = 0;
  for (const auto& [name, tensor] : model.initializers) {
    auto& place = data.places.emplace_back();
    if (tensor.nbytes() < kSmallestExternal) continue;
    const uint64_t offset = (end + kAlignment - 1) / kAlignment * kAlignment;
    place = Place{offset, tensor.nbytes()};
    end = offset + tensor.nbytes();
    const at::Tensor host = on_host(tensor);
    hash.update(host.const_data_ptr(), host.nbytes());
  }
  data.name = path.filename().string() + "." + hex64(hash.digest()) + ".data";
  return data;
}

void write_weights(AtomicFile& file, const OnnxModel& model, const DataFile& data) {
  const std::string zeros(kAlignment, '\0');
  for (size_t i = 0; i < model.initializers.size(); ++i) {
    if (!data.places[i]) continue;
    file.write(zeros.data(), data.places[i]->offset - file.size());
    const at::Tensor host = on_host(model.initializers[i].second);
    file.write(host.const_data_ptr(), host.nbytes());
  }
}

}  // namespace

WrittenModel write_onnx(const std::filesystem::path& path, const OnnxModel& model, uint64_t external_above) {
  uint64_t weights = 0;
  for (const auto& [name, tensor] : model.initializers) weights += tensor.nbytes();
  const auto before = data_files_of(path);
  AtomicFile file(path);
  WrittenModel out;
  std::optional<DataFile> data;
  std::optional<AtomicFile> weights_file;
  if (weights > external_above) data = place_weights(path, model);
  if (data && std::none_of(data->places.begin(), data->places.end(), [](const auto& place) { return place.has_value(); })) data.reset();
  if (data) {
    out.data = path.parent_path() / data->name;
    write_weights(weights_file.emplace(out.data), model, *data);
    out.data_bytes = weights_file->size();
  }
  file.write(encoded(model, data ? &*data : nullptr));
  out.bytes = file.size();
  if (weights_file) weights_file->commit();  // first, because the other file refers to it
  try {
    file.commit();
  } catch (...) {  // keeps the data file if an earlier export with the same weights refers to it
    const bool of_earlier = std::find(before.begin(), before.end(), out.data) != before.end();
    if (std::error_code ignored; weights_file && !of_earlier) std::filesystem::remove(out.data, ignored);
    throw;
  }
  for (const auto& old : before)
    if (std::error_code ignored; old != out.data) std::filesystem::remove(old, ignored);
  return out;
}

}  // namespace npu_train::onnx
