#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/tokens.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/text/chat_template.hpp"
#include "npu_train/text/chat_tokens.hpp"
#include "npu_train/text/tokenizer.hpp"

namespace npu_train::cli {
namespace {

constexpr uint64_t kLargestText = uint64_t{1} << 30;

struct TokenizeArguments {
  std::vector<std::string> texts;
  std::string to, tokenizer, file, messages;
  double val_fraction = 0.1;
  bool decode = false, no_special = false, generation_prompt = false, assistant_mask = false, json = false;
};

// ---- files of tokens ----

// Joins the tokens of all files in order, each followed by the end-of-text token; `empty` counts files without text.
template <class Tokens, class TokensOf>
Tokens tokens_of_files(const std::vector<std::string>& texts, const TokensOf& tokens_of, int64_t& empty) {
  Tokens out;
  for (const auto& path : texts) {
    const Tokens document = tokens_of(read_file(path, kLargestText), path);
    if (document.empty()) ++empty;
    check(
        out.size() + document.size() <= kLargestText, ErrorKind::Data, "tokenize", path, ": with this file there are more than ",
        with_commas(static_cast<int64_t>(kLargestText)),
        " tokens, the most for one run; hint: run tokenize several times with different --to folders, and name all of them with a pattern "
        "in data.train");
    out.insert(out.end(), document.begin(), document.end());
  }
  return out;
}

// Writes the tokens and prints their numbers. The last tokens are for the validation.
template <class Part, class Tokens>
int write_files(const TokenizeArguments& args, const Tokens& tokens, int64_t empty, int64_t vocabulary) {
  check(!tokens.empty(), ErrorKind::Data, "tokenize", "the ", args.texts.size(), " files have no text");
  const auto held = static_cast<int64_t>(args.val_fraction * static_cast<double>(tokens.size()));
  const auto split = tokens.begin() + (static_cast<std::ptrdiff_t>(tokens.size()) - held);
  make_folder(args.to);
  const auto train = (std::filesystem::path(args.to) / "train.bin").string(), val = (std::filesystem::path(args.to) / "val.bin").string();
  check(held > 0 || !std::filesystem::exists(val), ErrorKind::Usage, "tokenize", val,
        " exists, and this text is not divided (--val-fraction ", args.val_fraction, "); hint: remove that file, or choose another --to");
  std::vector<std::pair<std::string, Part>> files{{train, Part(tokens.begin(), split)}};
  if (held > 0) files.emplace_back(val, Part(split, tokens.end()));
  save_tokens(files);
  const auto count = [](int64_t n) { return with_commas(n) + (n == 1 ? " token" : " tokens"); };
  std::string text = train + ": " + count(static_cast<int64_t>(tokens.size()) - held) + "\n";
  if (held > 0) text += val + ": " + count(held) + "\n";
  if (empty > 0) text += std::to_string(empty) + (empty == 1 ? " file has no text\n" : " files have no text\n");
  print(args.json,
        Json::object({{"train", train},
                      {"train_tokens", static_cast<int64_t>(tokens.size()) - held},
                      {"val", held > 0 ? Json(val) : Json()},
                      {"val_tokens", held},
                      {"empty_files", empty},
                      {"vocab_size", vocabulary}}),
        text);
  return 0;
}

// Returns the token that ends a document: eos_token of tokenizer_config.json.
int64_t end_of_document(const Tokenizer& tokenizer, const std::string& path) {
  const auto settings = read_text_settings(path);
  const auto id = tokenizer.id(settings.end);
  check(!settings.end.empty() && id, ErrorKind::Data, "tokenize", path,
        ": there is no eos_token in a tokenizer_config.json next to the tokenizer, so that the end of a document has no token");
  return *id;
}

int write_token_files(const TokenizeArguments& args) {
  check(args.val_fraction >= 0 && args.val_fraction <= 0.9, ErrorKind::Usage, "tokenize", "--val-fraction ", args.val_fraction,
        "; allowed: 0 to 0.9");
  check(!args.texts.empty() && args.file.empty() && args.messages.empty() && !args.decode && !args.assistant_mask, ErrorKind::Usage,
        "tokenize", "with --to, name the files of text; --file, --messages, --assistant-mask and --decode are for texts that are printed");
  int64_t empty = 0;
  if (args.tokenizer.empty()) {
    const auto bytes = tokens_of_files<std::string>(args.texts, document_bytes, empty);
    return write_files<std::string_view>(args, bytes, empty, kByteVocabulary);
  }
  const auto tokenizer = Tokenizer::load(args.tokenizer);
  const auto end = end_of_document(tokenizer, args.tokenizer);
  const auto tokens_of = [&](const std::string& text, const std::string& /*path*/) {
    auto ids = tokenizer.encode(text, /*special_tokens=*/false).ids;
    if (!ids.empty()) ids.push_back(end);
    return ids;
  };
  const auto tokens = tokens_of_files<std::vector<int64_t>>(args.texts, tokens_of, empty);
  return write_files<std::vector<int64_t>>(args, tokens, empty, tokenizer.vocabulary_size());
}

// ---- texts that are printed ----

std::vector<int64_t> ids_of_list(const Json& list, const std::string& where) {
  std::vector<int64_t> out;
  for (const auto& id : list.items(where)) out.push_back(id.integer(where));
  return out;
}

std::vector<int64_t> ids_of_words(const std::string& text) {
  std::vector<int64_t> out;
  for (size_t at = text.find_first_not_of(", \n"); at != std::string::npos;) {
    const auto end = std::min(text.find_first_of(", \n", at), text.size());
    const auto number = whole_number(std::string_view(text).substr(at, end - at));
    check(number && *number >= 0, ErrorKind::Usage, "tokenize", "'", text.substr(at, end - at), "' is not the number of a token");
    out.push_back(*number);
    at = text.find_first_not_of(", \n", end);
  }
  return out;
}

class Printed {
 public:
  Printed(const Tokenizer& tokenizer, const TokenizeArguments& args) : tokenizer_(tokenizer), args_(args) {}

  void encode(const std::string& text) { add(tokenizer_.encode(text, !args_.no_special).ids); }

  // Prints the tokens of a chat, whose template contains the special tokens.
  void chat(const ChatTemplate& chat, const Json& messages, const std::string& where) {
    if (args_.assistant_mask) return answers(chat.with_answers(messages, Answers::All, where));
    const auto text = chat.text(messages, args_.generation_prompt);
    add(tokenizer_.encode(text, /*special_tokens=*/false).ids, text);
  }
  void decode(const std::vector<int64_t>& ids) {
    for (const auto id : ids)
      if (!tokenizer_.token(id)) log_warning("tokenize: ", id, " is the number of no token of ", args_.tokenizer, ", and gives no text");
    const auto text = tokenizer_.decode(ids, args_.no_special);
    text_ += npu_train::detail::visible_lines(text) + "\n";
    list_.push_back(Json::object({{"text", text}}));
  }

  void line(const Json& json, const std::string& where) {
    args_.decode ? decode(ids_of_list(json.at("tokens", where), where)) : encode(json.at("text", where).text(where));
  }

  void show(bool many) const { print(args_.json, many ? list_ : list_.items("tokenize").front(), text_); }

 private:
  // `mask` has a number for each id.
  void add(const std::vector<int64_t>& ids, const std::optional<std::string>& text = std::nullopt,
           const std::optional<std::vector<int64_t>>& mask = std::nullopt) {
    Json tokens = Json::array();
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto token = tokenizer_.token(ids[i]).value_or("");
      text_ += str_cat(ids[i], "\t", npu_train::detail::visible_text(token), mask ? str_cat("\t", (*mask)[i]) : "", "\n");
      tokens.push_back(token);
    }
    auto out = Json::object({{"ids", npu_train::detail::json_list(ids)}, {"tokens", tokens}});
    if (text) out.set("text", *text);
    if (mask) out.set("assistant_masks", npu_train::detail::json_list(*mask));  // the name that transformers uses
    list_.push_back(out);
  }

  void answers(const ChatText& chat) {
    const auto found = npu_train::detail::tokens_of_chat(tokenizer_, chat);
    std::vector<int64_t> mask(found.ids.size(), 0);
    for (const auto& [begin, end] : found.answers) std::fill(mask.begin() + begin, mask.begin() + end, 1);
    add(found.ids, chat.text, mask);
  }

  const Tokenizer& tokenizer_;
  const TokenizeArguments& args_;
  Json list_ = Json::array();
  std::string text_;
};

// Prints each line of a .jsonl file as a separate text.
void print_lines(Printed& printed, const std::string& path) {
  const auto text = read_file(path, kLargestText);
  int64_t number = 0;
  for_each_line(text, [&](std::string_view line) {
    const auto where = str_cat(path, ", line ", ++number);
    if (!npu_train::detail::trimmed_view(line).empty()) printed.line(parse_json(line, where), where);
  });
  printed.show(/*many=*/true);
}

// Prints the chats of a file, which has the messages of one chat, or a list of chats.
void print_chats(Printed& printed, const TokenizeArguments& args) {
  const ChatTemplate chat(read_text_settings(args.tokenizer));
  const auto json = load_json(args.messages);
  const auto& items = json.items(args.messages);
  const bool many = !items.empty() && items.front().is_array();
  if (!many) printed.chat(chat, json, args.messages);
  for (size_t i = 0; many && i < items.size(); ++i) {
    const auto where = str_cat(args.messages, ", chat ", i + 1);
    try {
      printed.chat(chat, items[i], where);
    } catch (const Error& e) {
      if (e.message().starts_with(where)) throw;
      throw Error(e.kind(), e.where(), str_cat(where, ": ", e.message()), "", std::current_exception());
    }
  }
  printed.show(many);
}

int print_tokens(const TokenizeArguments& args) {
  check(!args.tokenizer.empty(), ErrorKind::Usage, "tokenize",
        "give --to FOLDER for files of tokens, or --tokenizer FOLDER to print the tokens of a text");
  check(args.texts.size() + (args.file.empty() ? 0 : 1) + (args.messages.empty() ? 0 : 1) <= 1, ErrorKind::Usage, "tokenize",
        "give one text, --file FILE, --messages FILE, or none of them for the text on stdin; several files need --to FOLDER");
  const auto tokenizer = Tokenizer::load(args.tokenizer);
  Printed printed(tokenizer, args);
  check(!args.assistant_mask || (!args.messages.empty() && !args.generation_prompt), ErrorKind::Usage, "tokenize",
        "--assistant-mask is for --messages without --generation-prompt");
  if (!args.messages.empty()) {
    print_chats(printed, args);
    return 0;
  }
  if (args.file.ends_with(".jsonl")) {
    print_lines(printed, args.file);
    return 0;
  }
  std::string text;
  if (!args.texts.empty()) {
    text = args.texts.front();
  } else if (!args.file.empty()) {
    text = read_file(args.file, kLargestText);
  } else {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  args.decode ? printed.decode(ids_of_words(text)) : printed.encode(text);
  printed.show(/*many=*/false);
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Command& run) {
  auto args = std::make_shared<TokenizeArguments>();
  auto* sub = app.add_subcommand("tokenize", "texts to tokens: files for the training, or on the terminal");
  sub->add_option("texts", args->texts,
                  "with --to: text files, each of which becomes a document; otherwise one text, whose tokens are printed");
  sub->add_option("--to", args->to, "folder for train.bin and val.bin, in the format of llm.c");
  sub->add_option("--tokenizer", args->tokenizer,
                  "tokenizer.json or tokenizer.model of Hugging Face, or its folder; without it, each byte is a token");
  sub->add_option("--val-fraction", args->val_fraction, "share of the tokens, at the end, for val.bin (0.1)");
  sub->add_option("--file", args->file, "print the tokens of this file; of a .jsonl file, those of the \"text\" of each line");
  sub->add_option("--messages", args->messages, "print the tokens of a chat: JSON file with its messages, or with a list of chats");
  sub->add_flag("--generation-prompt", args->generation_prompt, "with --messages: end the text where the answer begins");
  sub->add_flag("--assistant-mask", args->assistant_mask,
                "with --messages: print 1 next to each token of an answer, which data.answers=all counts");
  sub->add_flag("--decode", args->decode, "the text consists of token numbers (\"12,0,7\"; \"tokens\" in a .jsonl file): print their text");
  sub->add_flag("--no-special-tokens", args->no_special, "add no special tokens around a text; with --decode, omit them");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts&) { return args->to.empty() ? print_tokens(*args) : write_token_files(*args); }; });
}

}  // namespace npu_train::cli
