#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/token_text.hpp"
#include "npu_train/data/tokens.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::cli {
namespace {

constexpr uint64_t kLargestText = uint64_t{1} << 30;

struct TokenizeArguments {
  std::vector<std::string> texts;
  std::string to;
  double val_fraction = 0.1;
  bool json = false;
};

// Joins the bytes of all files in order, each followed by the end-of-text token; `empty` counts files without text.
std::string bytes_of(const std::vector<std::string>& texts, int64_t& empty) {
  std::string out;
  for (const auto& path : texts) {
    const auto document = document_bytes(read_file(path, kLargestText), path);
    if (document.empty()) ++empty;
    check(
        out.size() + document.size() <= kLargestText, ErrorKind::Data, "tokenize", path, ": with this file there are more than ",
        with_commas(static_cast<int64_t>(kLargestText)),
        " tokens, the most for one run; hint: run tokenize several times with different --to folders, and name all of them with a pattern "
        "in data.train");
    out += document;
  }
  return out;
}

int tokenize(const TokenizeArguments& args) {
  check(args.val_fraction >= 0 && args.val_fraction <= 0.9, ErrorKind::Usage, "tokenize", "--val-fraction ", args.val_fraction,
        "; allowed: 0 to 0.9");
  int64_t empty = 0;
  const auto tokens = bytes_of(args.texts, empty);
  check(!tokens.empty(), ErrorKind::Data, "tokenize", "the ", args.texts.size(), " files have no text");
  const auto held = static_cast<int64_t>(args.val_fraction * static_cast<double>(tokens.size()));
  const auto split = tokens.size() - static_cast<size_t>(held);
  make_folder(args.to);
  const auto train = (std::filesystem::path(args.to) / "train.bin").string(), val = (std::filesystem::path(args.to) / "val.bin").string();
  check(held > 0 || !std::filesystem::exists(val), ErrorKind::Usage, "tokenize", val,
        " exists, and this text is not divided (--val-fraction ", args.val_fraction, "); hint: remove that file, or choose another --to");
  const std::string_view all = tokens;
  std::vector<std::pair<std::string, std::string_view>> files{{train, all.substr(0, split)}};
  if (held > 0) files.emplace_back(val, all.substr(split));
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
                      {"vocab_size", kByteVocabulary}}),
        text);
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Command& run) {
  auto args = std::make_shared<TokenizeArguments>();
  auto* sub = app.add_subcommand("tokenize", "text files to files of tokens, one token for each byte");
  sub->add_option("texts", args->texts, "text files; each becomes a document")->required();
  sub->add_option("--to", args->to, "folder for train.bin and val.bin, in the format of llm.c")->required();
  sub->add_option("--val-fraction", args->val_fraction, "share of the tokens, at the end, for val.bin (0.1)");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts&) { return tokenize(*args); }; });
}

}  // namespace npu_train::cli
