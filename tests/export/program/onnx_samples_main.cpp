// Writes exported models with inputs and outputs for tests/apps/onnx_test.py: onnx_samples DIR writes DIR/NAME-OPSET-DTYPE.onnx, with
// NAME-OPSET-DTYPE.in0.npy ... and .out.npy of a batch that the export did not record.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "../nets.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/io/npy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kOpsets[] = {15, 17, 20};

void write(const std::filesystem::path& dir, const std::string& name, const Model& model, const std::vector<at::Tensor>& inputs,
           const std::vector<at::Tensor>& unseen, int64_t opset, at::ScalarType dtype) {
  const auto stem = name + "-" + std::to_string(opset) + (dtype == at::kHalf ? "-fp16" : "-fp32");
  export_onnx(model, batch_of(inputs), dir / (stem + ".onnx"), {.opset = opset, .dtype = dtype});
  model.module->eval();
  const at::NoGradGuard no_grad;
  const auto batch = batch_of(unseen);
  for (size_t i = 0; i < unseen.size(); ++i) save_npy(dir / (stem + ".in" + std::to_string(i) + ".npy"), unseen[i], Durability::Renamed);
  save_npy(dir / (stem + ".out.npy"), model.forward(batch).first(), Durability::Renamed);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const std::filesystem::path dir = argv[1];
  torch::manual_seed(0);
  for (const auto& cases : {layer_cases(), arithmetic_cases(), shape_cases()})
    for (const auto& c : cases)
      for (const auto opset : kOpsets) write(dir, c.name, model_of(c), c.inputs, rows_of(c.inputs, 5), opset, at::kFloat);
  for (const auto& net : net_cases())
    for (const auto opset : kOpsets)
      for (const auto dtype : {at::kFloat, at::kHalf}) {
        auto unseen = rows_of(net.inputs, 5);
        if (!net.model.inputs.empty()) unseen[0] = at::cat({unseen[0], unseen[0].slice(1, 0, 3)}, 1);  // also more tokens
        write(dir, net.name, net.model, net.inputs, unseen, opset, dtype);
      }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
