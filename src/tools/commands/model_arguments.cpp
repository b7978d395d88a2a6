#include "model_arguments.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/engine/run_config.hpp"
#include "tools/commands/train_app/number_checks.hpp"

namespace npu_train::cli {

bool is_model_key(const std::string& word) { return word.starts_with("model.") && word.find('=') != std::string::npos; }

PartConfig ModelArguments::part(const Parts& parts) const {
  ConfigNode node{{"model", ConfigNode{{"name", name}}}};
  for (const auto& key : keys) {
    check(is_model_key(key), ErrorKind::Usage, "command line", "'", key, "' is not understood; allowed: model.KEY=VALUE");
    apply_override(node, key);
  }
  if (num_classes > 0) node.set("model.num_classes", ConfigNode(num_classes));
  return bind_config(node, parts).model;
}

void add_model_options(CLI::App& sub, ModelArguments& args, const std::string& model_help) {
  sub.add_option("--model", args.name, model_help + "; model.KEY=VALUE changes its options, as in model.image_size=384");
  sub.add_option("--num-classes", args.num_classes, "number of classes of that model, as model.num_classes=N")->check(above_zero());
}

}  // namespace npu_train::cli
