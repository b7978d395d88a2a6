#include "npu_train/nn/generate.hpp"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/visible_text.hpp"
#include "npu_train/core/whole_number.hpp"
#include "npu_train/data/token_text.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/npy.hpp"
#include "npu_train/models/internvl.hpp"

namespace npu_train::cli {
namespace {

struct GenerateArguments {
  std::string device = "auto", prompt, tokens, image, logits;
  ModelArguments model;
  GenerateOptions options;
  bool no_cache = false, json = false;
};

std::vector<int64_t> tokens_of_list(const std::string& list) {
  std::vector<int64_t> out;
  for (size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const auto number = whole_number(std::string_view(list).substr(begin, end - begin));
    check(number && *number >= 0, ErrorKind::Usage, "generate", "--tokens ", list, "; allowed: numbers separated by commas, as in 12,0,7");
    out.push_back(*number);
    begin = end + 1;
  }
  return out;
}

bool has_byte_tokens(const Model& model) {
  return !model.inputs.empty() && model.inputs.front().range && model.inputs.front().range->second == kByteVocabulary;
}

// Returns the logits [tokens, vocabulary] on the host.
at::Tensor logits_of(const Model& model, const std::vector<int64_t>& tokens) {
  const c10::AutoGradMode no_grad(false);
  const auto device = model.module->parameters().front().device();
  return model.forward(at::tensor(tokens, at::kLong).unsqueeze(0).to(device)).to(at::kCPU, at::kFloat).select(0, 0);
}

// Returns the model that continues the text; for a model with images, its decoder with the given image.
Model decoder_of(const GenerateArguments& args, const Predictor& predictor) {
  const auto& model = predictor.model();
  const bool reads_images = image_places(model).has_value();
  check(reads_images || args.image.empty(), ErrorKind::Usage, "generate", "--image is for models of images and texts, and the model is '",
        model.name, "'; allowed with it: internvl");
  check(!reads_images || !args.image.empty(), ErrorKind::Usage, "generate", "the model '", model.name,
        "' answers questions about an image; hint: give one with --image FILE");
  return reads_images ? about_image(model, predictor.read_image(args.image)) : model;
}

// Returns the bytes of a prompt. A question about an image is preceded by the place of the image and followed by a line feed, as in the
// data image_questions.
std::vector<int64_t> tokens_of_prompt(const std::string& prompt, const Model& whole) {
  auto out = byte_tokens(prompt);
  const auto places = image_places(whole);
  if (!places) return out;
  out.insert(out.begin(), static_cast<size_t>(places->count), places->token);
  out.push_back('\n');
  return out;
}

int generate_text_of(GenerateArguments args, const Parts& parts) {
  check(args.prompt.empty() != args.tokens.empty(), ErrorKind::Usage, "generate",
        "give exactly one of --prompt TEXT and --tokens 12,0,7; --tokens is for models whose tokens are not bytes");
  check_writable({args.logits});
  const auto predictor = Predictor::from_source(args.model.source("generate", /*needs_weights=*/true, parts), args.device, parts);
  const Model model = decoder_of(args, predictor);
  const bool bytes = has_byte_tokens(model);
  check(bytes || args.prompt.empty(), ErrorKind::Usage, "generate", "--prompt is for models whose tokens are bytes (vocab_size ",
        kByteVocabulary, "), and this model has another vocabulary; hint: give token numbers with --tokens");
  const auto prompt = args.prompt.empty() ? tokens_of_list(args.tokens) : tokens_of_prompt(args.prompt, predictor.model());
  const auto longest = model.inputs.empty() ? std::nullopt : model.inputs.front().usual("tokens");
  const auto most = static_cast<int64_t>(prompt.size()) + args.options.max_new_tokens;
  check(args.logits.empty() || !longest || most <= *longest, ErrorKind::Usage, "generate",
        "--logits needs one forward of all tokens: ", most, ", and the model takes ", *longest, "; hint: reduce --max-new-tokens");
  if (bytes) args.options.on_token = [](int64_t token) { return token != kEndOfText; };
  args.options.key_value_cache = !args.no_cache;

  const auto clock = steady_clock();
  const double start = clock->now();
  const auto tokens = generate(model, prompt, args.options);
  const double rate = static_cast<double>(tokens.size()) / std::max(clock->now() - start, 1e-9);
  auto all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end());
  if (!args.logits.empty()) save_npy(args.logits, logits_of(model, all));

  Json list = Json::array();
  std::string numbers;
  for (const auto token : tokens) {
    list.push_back(token);
    numbers += (numbers.empty() ? "" : ",") + std::to_string(token);
  }
  auto document = Json::object({{"prompt_tokens", static_cast<int64_t>(prompt.size())}, {"tokens", list}, {"tokens_per_second", rate}});
  if (bytes) document.set("text", text_of_bytes(tokens));
  const auto shown = args.image.empty() ? all : tokens;
  const auto text = bytes ? npu_train::detail::visible_lines(text_of_bytes(shown)) : numbers;
  print(args.json, document, str_cat(text, "\n", tokens.size(), " tokens, ", static_cast<int64_t>(rate + 0.5), " tokens/s\n"));
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Command& run) {
  auto args = std::make_shared<GenerateArguments>();
  auto& o = args->options;
  auto* sub = app.add_subcommand("generate", "continue a text with a language model");
  add_source_options(*sub, args->model);
  sub->add_option("--device", args->device, "auto | cpu | cuda[:i] | npu[:i]");
  sub->add_option("--prompt", args->prompt, "start of the text, for models whose tokens are bytes");
  sub->add_option("--tokens", args->tokens, "start of the text as token numbers, separated by commas");
  sub->add_option("--image", args->image, "JPEG or PNG file that the text is about, for internvl; --prompt is then the question");
  sub->add_option("--max-new-tokens", o.max_new_tokens, "number of tokens to add (100)")->check(zero_or_more());
  sub->add_option("--temperature", o.sampling.temperature, "the logits are divided by it (1); 0: always the most probable token")
      ->check(zero_or_more());
  sub->add_option("--top-k", o.sampling.top_k, "draw among the k most probable tokens; 0: all")->check(zero_or_more());
  sub->add_option("--top-p", o.sampling.top_p, "draw among the most probable tokens that together have this probability (1)");
  sub->add_option("--seed", o.seed, "of the draws (0)")->check(zero_or_more());
  sub->add_flag("--no-cache", args->no_cache, "compute every token again for each new one, to check the key-value cache");
  sub->add_option("--logits", args->logits, "write the logits of all tokens, from one complete forward, to this .npy file");
  sub->add_option("keys", args->model.keys, "model.KEY=VALUE ...");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return generate_text_of(*args, parts); }; });
}

}  // namespace npu_train::cli
