// Writes dumps by hand: a dump.json of given calls, with files of values next to it.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/io/file.hpp"
#include "npu_train/io/pickle.hpp"

namespace npu_train::testing {

class CraftedDump {
 public:
  explicit CraftedDump(const std::filesystem::path& folder, const std::string& facts = "") : step_(folder / "step0/rank0"), facts_(facts) {
    make_folder(step_ / "dump_tensor_data");
  }

  // Describes a value as dump.json does. `more` holds further members and begins with a comma.
  static std::string tensor(const std::string& shape, double max = 1, const std::string& dtype = "float32", const std::string& more = "") {
    const auto number = std::to_string(max);
    return R"({"type": "torch.Tensor", "dtype": "torch.)" + dtype + R"(", "shape": )" + shape + R"(, "Max": )" + number +
           R"(, "Min": 0, "Mean": 0.5, "Norm": )" + number + more + "}";
  }
  // Saves the values too.
  std::string tensor(const std::string& file, const at::Tensor& values, const std::string& shape, const std::string& more = "") const {
    save_pt(step_ / "dump_tensor_data" / file, values);
    return tensor(shape, 1, "float32", R"(, "data_name": ")" + file + "\"" + more);
  }

  // Adds a call that takes `input` and gives `output`.
  void add(const std::string& name, const std::string& output, const std::string& input = "") {
    calls_ += (calls_.empty() ? "\"" : ",\n\"") + name + R"(": {"input_args": [)" + input + R"(], "output": [)" + output + "]}";
  }
  // Adds a call that also has a weight.
  void add_layer(const std::string& name, const std::string& output, const std::string& input, const std::string& weight) {
    add(name, output, input);
    calls_.insert(calls_.size() - 1, R"(, "parameters": {"weight": )" + weight + "}");
  }
  // Adds a call with any content, as JSON.
  void add_call(const std::string& name, const std::string& content) {
    calls_ += (calls_.empty() ? "\"" : ",\n\"") + name + "\": " + content;
  }
  // Adds a backward call in which the input has this gradient.
  void add_backward(const std::string& name, const std::string& gradient) {
    calls_ += (calls_.empty() ? "\"" : ",\n\"") + name + R"(": {"input": [], "output": [)" + gradient + "]}";
  }
  std::filesystem::path write() const {
    write_file_atomic(step_ / "dump.json",
                      R"({"task": "tensor", "level": "L0", "npu_train": {)" + facts_ + "}, \"data\": {" + calls_ + "}}");
    return step_.parent_path().parent_path();
  }

 private:
  std::filesystem::path step_;
  std::string facts_, calls_;
};

}  // namespace npu_train::testing
