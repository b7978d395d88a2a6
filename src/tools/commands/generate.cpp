#include "npu_train/nn/generate.hpp"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "generated_text.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/data/tokens.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/npy.hpp"
#include "npu_train/models/internvl.hpp"
#include "npu_train/text/chat_template.hpp"

namespace npu_train::cli {
namespace {

constexpr const char* kCommand = "generate";
constexpr uint64_t kLargestPrompts = uint64_t{64} << 20;

struct GenerateArguments {
  std::string device = "auto", precision = "32-true", tokens, image, logits, tokenizer, prompts, messages;
  std::optional<std::string> prompt;
  std::vector<std::string> stops;
  ModelArguments model;
  GenerateOptions options;
  int64_t batch = 1;
  bool no_cache = false, json = false;
};

std::vector<int64_t> tokens_of_list(const std::string& list) {
  std::vector<int64_t> out;
  for (size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const auto number = whole_number(std::string_view(list).substr(begin, end - begin));
    check(number && *number >= 0, ErrorKind::Usage, kCommand, "--tokens ", list, "; allowed: numbers separated by commas, as in 12,0,7");
    out.push_back(*number);
    begin = end + 1;
  }
  return out;
}

// Returns the logits [tokens, vocabulary] on the host.
at::Tensor logits_of(const Model& model, const std::vector<int64_t>& tokens) {
  const c10::AutoGradMode no_grad(false);
  const auto device = model.module->parameters().front().device();
  return model.forward(at::tensor(tokens, at::kLong).unsqueeze(0).to(device)).to(at::kCPU, at::kFloat).select(0, 0);
}

// Returns the model that continues the text. For a model with images, this is its decoder with the given image.
Model decoder_of(const GenerateArguments& args, const Predictor& predictor) {
  const auto& model = predictor.model();
  const bool reads_images = image_places(model).has_value();
  check(reads_images || args.image.empty(), ErrorKind::Usage, kCommand, "--image is for models of images and texts, and the model is '",
        model.name, "'; allowed with it: internvl");
  check(!reads_images || !args.image.empty(), ErrorKind::Usage, kCommand, "the model '", model.name,
        "' answers questions about an image; hint: give one with --image FILE");
  return reads_images ? about_image(model, predictor.read_image(args.image)) : model;
}

// Returns the tokens of a prompt. A question about an image has a placeholder of the image before it and a line feed after it, as in the
// data image_questions.
std::vector<int64_t> tokens_of_prompt(const std::string& prompt, const TextCodec& codec, const Model& whole) {
  auto out = codec.encode(prompt, /*special_tokens=*/true);
  const auto places = image_places(whole);
  if (!places) return out;
  out.insert(out.begin(), static_cast<size_t>(places->count), places->token);
  out.push_back('\n');
  return out;
}

std::vector<std::string> prompts_of_file(const std::string& path) {
  const auto text = read_file(path, kLargestPrompts);
  std::vector<std::string> out;
  for_each_line(text, [&](std::string_view prompt) {
    check(!prompt.empty(), ErrorKind::Data, kCommand, path, ", line ", out.size() + 1, ": the prompt is empty");
    out.emplace_back(prompt);
  });
  check(!out.empty(), ErrorKind::Data, kCommand, path, ": there are no prompts; allowed: one in each line");
  return out;
}

struct Prompt {
  std::string shown;  // text that is printed before the generated one
  std::vector<int64_t> tokens;
};

std::vector<Prompt> prompts_of(const GenerateArguments& args, const TextCodec& codec, const Model& whole) {
  if (!args.tokens.empty()) {
    const auto tokens = tokens_of_list(args.tokens);
    return {{args.image.empty() && codec.decode ? codec.decode(tokens) : "", tokens}};
  }
  check(codec.encode != nullptr, ErrorKind::Usage, kCommand, "--prompt is for models whose tokens are bytes (vocab_size ", kByteVocabulary,
        "), or with a tokenizer, and this model has neither; hint: give --tokenizer FOLDER, or token numbers with --tokens");
  if (!args.messages.empty()) {
    const auto text = ChatTemplate(codec.settings).text(load_json(args.messages), /*generation_prompt=*/true);
    return {{"", codec.encode(text, /*special_tokens=*/false)}};
  }
  std::vector<Prompt> out;
  for (const auto& prompt : args.prompts.empty() ? std::vector{*args.prompt} : prompts_of_file(args.prompts))
    out.push_back({args.image.empty() ? prompt : "", tokens_of_prompt(prompt, codec, whole)});
  return out;
}

std::string numbers_of(const std::vector<int64_t>& tokens) {
  std::string out;
  for (const auto token : tokens) out += (out.empty() ? "" : ",") + std::to_string(token);
  return out;
}

void check_one_prompt(const GenerateArguments& args) {
  const int given = (args.prompt && !args.prompt->empty() ? 1 : 0) + (args.tokens.empty() ? 0 : 1) + (args.prompts.empty() ? 0 : 1) +
                    (args.messages.empty() ? 0 : 1);
  check(given == 1, ErrorKind::Usage, kCommand,
        "give exactly one of --prompt TEXT and --tokens 12,0,7, or one of --prompts FILE and --messages FILE; --tokens is for models whose "
        "tokens have no known texts");
}

void check_length(const GenerateArguments& args, const Model& model, size_t prompt) {
  const auto longest = model.inputs.empty() ? std::nullopt : model.inputs.front().usual("tokens");
  const auto most = static_cast<int64_t>(prompt) + args.options.max_new_tokens;
  check(args.logits.empty() || !longest || most <= *longest, ErrorKind::Usage, kCommand, "--logits needs one forward of all tokens: ", most,
        ", and the model takes ", *longest, "; hint: reduce --max-new-tokens");
}

// A text whose tokens have been generated.
struct Continued {
  const Prompt& prompt;
  const std::vector<int64_t>& tokens;
  GeneratedText& text;
  bool printed;  // the text is already printed, except the part that a stop text may still cut off
  double rate;   // tokens per second, of all texts of the batch
};

// Prints the rest of a text, and returns its description.
Json finished(const GenerateArguments& args, const Model& model, const TextCodec& codec, const Continued& of) {
  auto all = of.prompt.tokens;
  all.insert(all.end(), of.tokens.begin(), of.tokens.end());
  if (!args.logits.empty()) save_npy(args.logits, logits_of(model, all));
  auto out = Json::object({{"prompt_tokens", static_cast<int64_t>(of.prompt.tokens.size())},
                           {"tokens", npu_train::detail::json_list(of.tokens)},
                           {"tokens_per_second", of.rate}});
  if (codec.decode) out.set("text", of.text.finish());
  if (args.json) return out;
  const auto numbers = numbers_of(args.image.empty() ? all : of.tokens);
  const auto rest = !codec.decode ? numbers : of.printed ? std::string() : npu_train::detail::visible_lines(of.text.finish());
  std::printf("%s\n%zu tokens, %lld tokens/s\n", rest.c_str(), of.tokens.size(), static_cast<long long>(of.rate + 0.5));
  return out;
}

// Generates and prints the texts after the prompts of a batch. A single text is printed while it is generated.
std::vector<Json> continued(const GenerateArguments& args, const Model& model, const TextCodec& codec, at::ArrayRef<Prompt> prompts) {
  const bool streams = prompts.size() == 1 && !args.json;
  std::vector<GeneratedText> texts;
  std::vector<std::vector<int64_t>> starts;
  for (const auto& prompt : prompts) {
    texts.emplace_back(codec.decode, args.stops, /*print=*/streams && codec.decode);
    starts.push_back(prompt.tokens);
  }
  bool begun = !streams;
  // Call it only after the prompt has been checked.
  const auto begin = [&] {
    if (!begun) std::printf("%s", npu_train::detail::visible_lines(prompts.front().shown).c_str());
    begun = true;
  };
  const auto on_token = [&](size_t row, int64_t token) {
    begin();
    const auto& ends = codec.settings.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) return false;
    return !codec.decode || texts[row].add(token);
  };
  const auto clock = steady_clock();
  const double start = clock->now();
  const auto tokens = generate_batch(model, starts, args.options, on_token);
  size_t count = 0;
  for (const auto& row : tokens) count += row.size();
  const double rate = static_cast<double>(count) / std::max(clock->now() - start, 1e-9);
  begin();
  std::vector<Json> out;
  for (size_t row = 0; row < prompts.size(); ++row) {
    if (!args.json && !streams) std::printf("%s", npu_train::detail::visible_lines(prompts[row].shown).c_str());
    out.push_back(finished(args, model, codec, {prompts[row], tokens[row], texts[row], /*printed=*/streams, rate}));
  }
  return out;
}

int generate_text_of(GenerateArguments args, const Parts& parts) {
  check_one_prompt(args);
  check(args.stops.empty() || args.options.max_new_tokens > 0, ErrorKind::Usage, kCommand, "--stop needs tokens: --max-new-tokens is 0");
  check(args.batch == 1 || !args.prompts.empty(), ErrorKind::Usage, kCommand, "--batch ", args.batch, " is for --prompts FILE");
  check_writable({args.logits});
  const auto source = args.model.source(kCommand, /*needs_weights=*/true, parts);
  const auto predictor = Predictor::from_source(source, args.device, parts);
  if (args.precision == "bf16-true") predictor.model().module->to(at::kBFloat16);
  const Model model = decoder_of(args, predictor);
  check(args.batch == 1 || args.no_cache || model.start_batch, ErrorKind::Usage, kCommand, "--batch ", args.batch, ": the model '",
        model.name, "' continues one text at a time; hint: remove it");
  const auto codec = text_codec(model, args.tokenizer, source.weights, /*needed=*/args.tokens.empty() || !args.stops.empty());
  check(codec.decode || args.stops.empty(), ErrorKind::Usage, kCommand,
        "--stop is a text, and the texts of this model's tokens are not known; ", "hint: give --tokenizer FOLDER");
  args.options.key_value_cache = !args.no_cache;
  const auto prompts = prompts_of(args, codec, predictor.model());
  check(prompts.size() == 1 || args.logits.empty(), ErrorKind::Usage, kCommand, "--logits is for one prompt");
  for (const auto& prompt : prompts) check_length(args, model, prompt.tokens.size());
  auto list = Json::array();
  const at::ArrayRef<Prompt> all = prompts;
  const auto batch = static_cast<size_t>(args.batch);
  for (size_t first = 0; first < all.size(); first += batch)
    for (auto& text : continued(args, model, codec, all.slice(first, std::min(batch, all.size() - first)))) list.push_back(std::move(text));
  if (args.json) print(true, args.prompts.empty() ? list.items(kCommand).front() : list, "");
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Command& run) {
  auto args = std::make_shared<GenerateArguments>();
  auto& o = args->options;
  auto* sub = app.add_subcommand("generate", "continue a text with a language model");
  add_source_options(*sub, args->model);
  sub->add_option("--device", args->device, "auto | cpu | cuda[:i] | npu[:i]");
  sub->add_option("--precision", args->precision, "of weights and arithmetic: 32-true, bf16-true")
      ->check(CLI::IsMember({"32-true", "bf16-true"}));
  sub->add_option("--tokenizer", args->tokenizer,
                  "tokenizer.json or tokenizer.model of Hugging Face, or its folder (the one next to the weights)");
  sub->add_option("--prompt", args->prompt, "start of the text");
  sub->add_option("--prompts", args->prompts, "file with a prompt in each line");
  sub->add_option("--batch", args->batch, "of --prompts, continue this many at a time (1)")->check(above_zero());
  sub->add_option("--messages", args->messages,
                  "JSON file with the messages of a chat, for the chat template of the tokenizer: "
                  "[{\"role\": \"user\", \"content\": \"...\"}]");
  sub->add_option("--tokens", args->tokens, "start of the text as token numbers, separated by commas");
  sub->add_option("--image", args->image, "image file that the text is about, for internvl; --prompt is then the question");
  sub->add_option("--max-new-tokens", o.max_new_tokens, "number of tokens to add (100)")->check(zero_or_more());
  sub->add_option("--stop", args->stops, "end the text before this text; may be given several times")->allow_extra_args(false);
  sub->add_option("--temperature", o.sampling.temperature, "the logits are divided by it (1); 0: always the most probable token")
      ->check(zero_or_more());
  sub->add_option("--top-k", o.sampling.top_k, "draw among the k most probable tokens; 0: all")->check(zero_or_more());
  sub->add_option("--top-p", o.sampling.top_p, "draw among the most probable tokens that together have this probability (1)");
  sub->add_option("--repetition-penalty", o.sampling.repetition_penalty, "above 1: tokens that the text has become less probable (1)")
      ->check(above_zero());
  sub->add_option("--seed", o.seed, "of the draws (0)")->check(zero_or_more());
  sub->add_flag("--no-cache", args->no_cache, "compute every token again for each new one, to check the key-value cache");
  sub->add_option("--logits", args->logits, "write the logits of all tokens, from one complete forward, to this .npy file");
  sub->add_option("keys", args->model.keys, "model.KEY=VALUE ...");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return generate_text_of(*args, parts); }; });
}

}  // namespace npu_train::cli
