#include <ATen/TensorOperators.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/pth_writer.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAverage = "average";

struct AverageArguments {
  std::vector<std::string> from;
  std::string to, set;
  int64_t last = 0;
  bool json = false;
};

// Returns the checkpoints of a run, or of its folder of checkpoints, in the order of their steps; for any other path, the path itself.
std::vector<std::string> sources_in(const std::string& path) {
  const auto folder = fs::is_directory(fs::path(path) / "checkpoints") ? fs::path(path) / "checkpoints" : fs::path(path);
  if (!fs::is_directory(folder) || fs::exists(folder / "manifest.json")) return {path};
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.is_symlink() && entry.path().filename().string().starts_with("epoch=") && fs::exists(entry.path() / "manifest.json"))
      found.emplace_back(read_checkpoint_meta(entry.path().string()).global_step, entry.path().string());
  if (found.empty()) return {path};  // a model folder of another library
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [step, checkpoint] : found) out.push_back(std::move(checkpoint));
  return out;
}

// The sum of the weights so far, in fp64. Integer tensors, such as counters of batches, are taken from the newest source.
struct Sum {
  NamedTensors tensors{};
  std::string first{};

  void add(const std::string& path, const NamedTensors& weights) {
    if (first.empty()) {
      first = path;
      for (const auto& [name, tensor] : weights) tensors.emplace_back(name, tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor);
      return;
    }
    check(weights.size() == tensors.size(), ErrorKind::Checkpoint, kAverage, path, " has ", weights.size(), " tensors, and ", first, " ",
          tensors.size(), "; only weights of one network can be averaged");
    for (const auto& [name, tensor] : weights) {
      const auto here = std::find_if(tensors.begin(), tensors.end(), [&wanted = name](const auto& t) { return t.first == wanted; });
      check(here != tensors.end(), ErrorKind::Checkpoint, kAverage, path, " has a tensor ", name, ", and ", first, " has none");
      check(here->second.sizes() == tensor.sizes(), ErrorKind::Checkpoint, kAverage, name, " has the shape ", tensor.sizes(), " in ", path,
            " and ", here->second.sizes(), " in ", first);
      here->second = tensor.is_floating_point() ? here->second + tensor.to(at::kDouble) : tensor;
    }
  }
};

int average(const AverageArguments& args) {
  const fs::path to(args.to);
  check(is_safetensors_name(to) || to.extension() == ".pt" || to.extension() == ".pth", ErrorKind::Usage, kAverage, "--to ", args.to,
        ": must end in .safetensors, .pt or .pth");
  std::vector<std::string> sources;
  for (const auto& path : args.from) {
    const auto in = sources_in(path);
    sources.insert(sources.end(), in.begin(), in.end());
  }
  const auto count = static_cast<int64_t>(sources.size());
  check(args.last <= count, ErrorKind::Usage, kAverage, "--last ", args.last, ", and there are ", count, " checkpoints");
  if (args.last > 0) sources.erase(sources.begin(), sources.end() - args.last);
  check(sources.size() > 1, ErrorKind::Usage, kAverage, "only ", sources.front(), args.last > 0 ? " is left by --last" : " is given",
        "; hint: a run with several checkpoints (checkpoint.save_top_k), or several files");
  const std::set<std::string> different(sources.begin(), sources.end());
  check(different.size() == sources.size(), ErrorKind::Usage, kAverage, "a checkpoint is given twice, among the ", sources.size(),
        " of the command line; allowed: each once");
  if (!to.parent_path().empty()) make_folder(to.parent_path());
  check_writable({args.to});
  const auto set = weight_set_argument(kAverage, args.set).value_or(WeightSet::Auto);
  Sum sum;
  NamedTensors newest;
  for (const auto& path : sources) sum.add(path, newest = read_weights_file(path, set));
  for (auto& [name, tensor] : newest) {
    const auto total = std::find_if(sum.tensors.begin(), sum.tensors.end(), [&, n = name](const auto& t) { return t.first == n; });
    if (tensor.is_floating_point()) tensor = (total->second / static_cast<double>(sources.size())).to(tensor.scalar_type());
  }
  if (is_safetensors_name(to))
    save_safetensors(args.to, newest, {{"format", "pt"}});
  else
    save_pth(args.to, PthValue::dict(newest));
  std::string text = str_cat("average of ", sources.size(), ":\n");
  for (const auto& path : sources) text += "  " + path + "\n";
  print(args.json,
        Json::object({{"from", npu_train::detail::json_list(sources)}, {"tensors", static_cast<int64_t>(newest.size())}, {"to", args.to}}),
        text + "wrote " + args.to + "\n");
  return 0;
}

}  // namespace

void add_average(CLI::App& app, Command& run) {
  auto args = std::make_shared<AverageArguments>();
  auto* sub = app.add_subcommand("average", "average the weights of checkpoints or files");
  sub->add_option("from", args->from, "runs, folders of checkpoints, checkpoints, or files of weights")->required();
  sub->add_option("--last", args->last, "only the last N, in the order of the command line; those of a run in the order of their steps")
      ->check(CLI::PositiveNumber);
  sub->add_option("--to", args->to, "the .safetensors, .pt or .pth file to write")->required();
  sub->add_option("--weights", args->set, "of a checkpoint that has both: plain, or ema (the default if there are any)");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts&) { return average(*args); }; });
}

}  // namespace npu_train::cli
