// Field numbers and enumerations of ONNX files, as far as this library uses them.
// Source: onnx/onnx.proto3 of the ONNX project (https://github.com/onnx/onnx), IR version 13. Existing numbers never change.
#pragma once

#include <cstdint>

namespace npu_train::onnx::proto {

enum class ModelField : uint32_t {
  IrVersion = 1,
  ProducerName = 2,
  ProducerVersion = 3,
  Graph = 7,
  OpsetImport = 8,
  MetadataProps = 14,
};
enum class OperatorSetField : uint32_t { Domain = 1, Version = 2 };
/// Fields of metadata_props and external_data.
enum class EntryField : uint32_t { Key = 1, Value = 2 };
enum class GraphField : uint32_t { Node = 1, Name = 2, Initializer = 5, Input = 11, Output = 12 };
enum class NodeField : uint32_t { Input = 1, Output = 2, Name = 3, OpType = 4, Attribute = 5, Domain = 7 };
enum class AttributeField : uint32_t { Name = 1, Float = 2, Int = 3, String = 4, Tensor = 5, Ints = 8, Type = 20 };
enum class AttributeType : int32_t { Float = 1, Int = 2, String = 3, Tensor = 4, Ints = 7 };
enum class TensorField : uint32_t { Dims = 1, DataType = 2, Name = 8, RawData = 9, ExternalData = 13, DataLocation = 14 };
enum class DataLocation : int32_t { Default = 0, External = 1 };
enum class ValueInfoField : uint32_t { Name = 1, Type = 2 };
enum class TypeField : uint32_t { Tensor = 1 };
enum class TensorTypeField : uint32_t { ElementType = 1, Shape = 2 };
enum class ShapeField : uint32_t { Dim = 1 };
enum class DimField : uint32_t { Value = 1, Param = 2 };

/// TensorProto.DataType
enum class DataType : int32_t {
  Float = 1,
  Uint8 = 2,
  Int8 = 3,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  Bfloat16 = 16,
};

}  // namespace npu_train::onnx::proto
