#include "export/onnxruntime.hpp"

#include <cstdlib>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/process.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/npy.hpp"

namespace npu_train::onnx {
namespace {

constexpr const char *kRunFiles = "check_onnx", *kPythonVariable = "NPU_TRAIN_ONNX_PYTHON";
constexpr int kNotInstalled = 3;
// Python program that reads inputs.json, a list of the input names for each model file, and writes results.json. Files of tensors are
// numbered, because names of values may have any characters.
constexpr const char* kScript = R"(
import json, sys
try:
    import numpy, onnxruntime
except ImportError as error:
    print(error)
    sys.exit(3)
folder, *files = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
results = []
for i, (file, given) in enumerate(zip(files, json.load(open(f'{folder}/inputs.json', encoding='utf-8')))):
    try:
        session = onnxruntime.InferenceSession(file, options, providers=['CPUExecutionProvider'])
        read = {value.name for value in session.get_inputs()}
        values = session.run(None, {name: numpy.load(f'{folder}/{i}.in{k}.npy') for k, name in enumerate(given) if name in read})
        for k, value in enumerate(values): numpy.save(f'{folder}/{i}.out{k}.npy', value)
        results.append({'outputs': [value.name for value in session.get_outputs()], 'error': ''})
    except Exception as error:
        results.append({'outputs': [], 'error': str(error) or repr(error)})
with open(f'{folder}/results.json', 'w', encoding='utf-8') as out:
    json.dump({'version': onnxruntime.__version__, 'files': results}, out)
)";

std::string python_program() {
  const char* set = std::getenv(kPythonVariable);
  return set != nullptr && *set != '\0' ? set : "python3";
}

// Returns the name of the file with tensor `index` of run `run`.
std::string tensor_file(size_t run, const char* what, size_t index) {
  return std::to_string(run) + "." + what + std::to_string(index) + ".npy";
}

void write_inputs(const std::filesystem::path& folder, const std::vector<FileRun>& runs) {
  Json names = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    Json of_file = Json::array();
    const auto& fields = runs[i].inputs.fields();
    for (size_t k = 0; k < fields.size(); ++k) {
      save_npy(folder / tensor_file(i, "in", k), fields[k].second, Durability::Renamed);
      of_file.push_back(fields[k].first);
    }
    names.push_back(std::move(of_file));
  }
  write_file_atomic(folder / "inputs.json", names.dump());
}

void run_script(const std::filesystem::path& folder, const std::vector<FileRun>& runs) {
  const auto program = python_program();
  std::vector<std::string> command{program, "-c", kScript, folder.string()};
  for (const auto& run : runs) command.push_back(std::filesystem::absolute(run.file).string());
  const auto ran = run_command(command, {.deadline = std::nullopt});
  const auto not_checked = [&](const std::string& why) {
    return Error(ErrorKind::Device, kRunFiles, "not checked: " + why,
                 "install onnxruntime (" + program + " -m pip install onnxruntime), or name a Python that has it in " + kPythonVariable);
  };
  if (ran.end == CommandResult::End::NotFound) throw not_checked("onnxruntime needs Python, and there is no program " + program);
  if (ran.end == CommandResult::End::Exited && ran.status == kNotInstalled)
    throw not_checked(program + " cannot import onnxruntime: " + npu_train::detail::first_line(ran.output));
  check(ran.ok(), ErrorKind::Data, kRunFiles, "onnxruntime has ended early: ", ran.output);
}

FileResult result_of(const Json& described, const std::filesystem::path& folder, size_t run) {
  std::vector<Outputs::Field> outputs;
  for (const auto& name : described.at("outputs", kRunFiles).items(kRunFiles))
    outputs.emplace_back(name.text(kRunFiles), load_npy(folder / tensor_file(run, "out", outputs.size())));
  return {.outputs = Outputs(std::move(outputs)), .error = described.at("error", kRunFiles).text(kRunFiles)};
}

}  // namespace

OnnxruntimeResults run_onnxruntime(const std::vector<FileRun>& runs) {
  const npu_train::detail::ScratchFolder scratch(kRunFiles);
  write_inputs(scratch.path, runs);
  run_script(scratch.path, runs);
  const auto written = load_json(scratch.path / "results.json");
  OnnxruntimeResults out{.version = written.at("version", kRunFiles).text(kRunFiles), .files = {}};
  for (const auto& described : written.at("files", kRunFiles).items(kRunFiles))
    out.files.push_back(result_of(described, scratch.path, out.files.size()));
  return out;
}

}  // namespace npu_train::onnx
