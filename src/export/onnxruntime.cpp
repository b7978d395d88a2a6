#include "export/onnxruntime.hpp"

#include <sstream>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/process.hpp"
#include "npu_train/io/npy.hpp"
#include "npu_train/io/scratch_folder.hpp"

namespace npu_train::onnx {
namespace {

constexpr int kNotInstalled = 3;
// Prints the version, then the name of each output on its own line.
constexpr const char* kScript = R"(
import sys
try:
    import numpy, onnxruntime
except ImportError:
    sys.exit(3)
folder, model, *names = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
feed = {name: numpy.load(f'{folder}/in{i}.npy') for i, name in enumerate(names)}
print(onnxruntime.__version__)
for i, (output, value) in enumerate(zip(session.get_outputs(), session.run(None, feed))):
    numpy.save(f'{folder}/out{i}.npy', value)
    print(output.name)
)";

}  // namespace

std::optional<std::pair<std::string, Outputs>> run_onnxruntime(const std::filesystem::path& file, const Batch& inputs) {
  const npu_train::detail::ScratchFolder scratch("check_onnx");
  const auto& folder = scratch.path;
  std::vector<std::string> command{"python3", "-c", kScript, folder.string(), std::filesystem::absolute(file).string()};
  for (size_t i = 0; i < inputs.fields().size(); ++i) {
    save_npy(folder / ("in" + std::to_string(i) + ".npy"), inputs.fields()[i].second);
    command.push_back(inputs.fields()[i].first);
  }
  const auto ran = run_command(command, {.deadline = std::nullopt});
  if (ran.end == CommandResult::End::NotFound || (ran.end == CommandResult::End::Exited && ran.status == kNotInstalled))
    return std::nullopt;
  check(ran.ok(), ErrorKind::Data, "check_onnx", "onnxruntime cannot run ", file.string(), ": ", ran.output);
  std::istringstream lines(ran.output);
  std::string version;
  std::getline(lines, version);
  std::vector<Outputs::Field> out;
  for (std::string name; std::getline(lines, name);)
    out.emplace_back(name, load_npy(folder / ("out" + std::to_string(out.size()) + ".npy")));
  return std::pair(version, Outputs(std::move(out)));
}

}  // namespace npu_train::onnx
