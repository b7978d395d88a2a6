#include "testing.hpp"

#include "npu_train/data/documents.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/pad_field.hpp"
#include "draining.hpp"
#include "npu_train/data/datasets.hpp"
#include "token_ids.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Ids input_of(const Dataset& data, int64_t index) { return ids_of(data.get(index).fields[0].second); }

struct Texts {
  TempDir dir;
  std::string path(const std::string& name) const { return (dir.path() / name).string(); }
  std::string tokens(const std::string& name, const Ids& ids) const {
    save_tokens(path(name), ids);
    return path(name);
  }
  std::string lines(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
};

DatasetPair open_texts(ConfigNode options) {
  return builtin_datasets().make({.name = "documents", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
}

template <class Fn>
void fails_with(const Fn& run, ErrorKind kind, const std::string& words) {
  const auto error = error_of(run);
  CHECK(((error.kind() == kind)));
  CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
}

// A data set of sequences of 1, 2, ... tokens.
class Staircase final : public SequenceDataset {
 public:
  explicit Staircase(int64_t longest = 12) : longest_(longest) {}
  int64_t size() const override { return 10; }
  Sample get(int64_t index) const override { return {{{"input", at::full({index + 1}, index, at::kLong)}}, index}; }
  int64_t padding() const override { return 99; }
  int64_t longest() const override { return longest_; }

 private:
  int64_t longest_;
};

}  // namespace

TEST_CASE("a document of a token file ends at its end_token, which it keeps, and files do not run into each other") {
  const Texts texts;
  texts.tokens("b.bin", {9, 8, 7});
  texts.tokens("a.bin", {1, 2, 0, 3, 0, 4, 5, 6, 0});
  const auto data = open_texts({{"train", texts.dir.path().string()}}).train;
  REQUIRE(data->size() == 4);
  CHECK(input_of(*data, 0) == Ids{1, 2, 0});
  CHECK(input_of(*data, 1) == Ids{3, 0});
  CHECK(input_of(*data, 2) == Ids{4, 5, 6, 0});
  CHECK(input_of(*data, 3) == Ids{9, 8, 7});  // the file has no end token
  CHECK(data->where(2).ends_with("a.bin, tokens 5 to 8"));
  CHECK(data->get(0).fields.size() == 1);
  CHECK(data->info().num_classes == 0);
}

TEST_CASE("other ends and beginnings, and documents across the pieces in which a file is read") {
  const Texts texts;
  Ids all;
  for (int64_t i = 0; i < 100000; ++i) all.insert(all.end(), {200 + i % 50000, 0, 102});
  const auto path = texts.tokens("a.bin", all);
  const auto data = open_texts({{"train", path}, {"end_token", 102}, {"begin_token", 101}, {"context", 4}}).train;
  REQUIRE(data->size() == 100000);
  for (int64_t i = 0; i < 100000; i += 7) REQUIRE(input_of(*data, i) == Ids{101, 200 + i % 50000, 0, 102});
}

TEST_CASE("long documents are an error with its place, are truncated, or are split") {
  const Texts texts;
  const auto path = texts.tokens("a.bin", {1, 2, 0, 3, 4, 5, 6, 7, 8, 9, 0});
  fails_with(
      [&] {
        open_texts({{"train", path}, {"context", 4}});
      },
      ErrorKind::Data, "a.bin: the document at token 3 has 8 tokens; allowed: at most 4");
  const auto cut = open_texts({{"train", path}, {"context", 4}, {"long_documents", "truncate"}});
  REQUIRE(cut.train->size() == 2);
  CHECK(input_of(*cut.train, 1) == Ids{3, 4, 5, 0});
  CHECK(cut.summary() == "2 samples, 1 document truncated to 4 tokens");
  const auto split = open_texts({{"train", path}, {"context", 4}, {"long_documents", "split"}, {"begin_token", 257}});
  REQUIRE(split.train->size() == 4);
  CHECK(input_of(*split.train, 0) == Ids{257, 1, 2, 0});
  CHECK(input_of(*split.train, 1) == Ids{257, 3, 4, 5});
  CHECK(input_of(*split.train, 3) == Ids{257, 9, 0});
  CHECK(split.summary() == "4 samples, 1 document split into samples of at most 4 tokens");
  const auto omitted = open_texts({{"train", path}, {"context", 4}, {"on_bad_sample", "skip"}});
  CHECK(omitted.train->size() == 1);
  CHECK(omitted.summary() == "1 samples, 1 document omitted (longer than 4 tokens)");
}

TEST_CASE("empty documents and tokens outside of the vocabulary are an error with their place, or are counted") {
  const Texts texts;
  const auto empty = texts.tokens("a.bin", {1, 0, 0, 2, 0});
  fails_with([&] { open_texts({{"train", empty}}); }, ErrorKind::Data, "a.bin: the document at token 2 is empty");
  const auto pair = open_texts({{"train", empty}, {"on_bad_sample", "skip"}});
  CHECK(pair.summary() == "2 samples, 1 document omitted (empty)");
  CHECK(input_of(*pair.train, 1) == Ids{2, 0});
  const auto unknown = texts.tokens("b.bin", {1, 0, 2, 258, 259, 0, 3, 0});
  fails_with([&] { open_texts({{"train", unknown}, {"vocab_size", 258}}); }, ErrorKind::Data, "b.bin: token 3 is 258; allowed: 0 to 257");
  const auto rest = open_texts({{"train", unknown}, {"vocab_size", 258}, {"on_bad_sample", "skip"}});
  CHECK(rest.summary() == "2 samples, 1 document omitted (tokens outside of the vocabulary)");
  CHECK(input_of(*rest.train, 1) == Ids{3, 0});
  fails_with(
      [&] {
        open_texts({{"train", texts.tokens("c.bin", {0, 0})}, {"on_bad_sample", "skip"}});
      },
      ErrorKind::Data, "no document remains");
}

TEST_CASE("labelled texts: bytes with an end, tokens as they are, classes in alphabetical order") {
  const Texts texts;
  const auto path = texts.lines("a.jsonl",
                                "{\"text\": \"ab\", \"label\": \"sport\"}\n\n"
                                "{\"label\": \"art\", \"text\": \"\xc3\xa9\"}\r\n"
                                "{\"tokens\": [7, 8], \"label\": \"sport\"}");
  const auto pair = open_texts({{"train", path}, {"begin_token", 257}, {"vocab_size", 258}});
  REQUIRE(pair.train->size() == 3);
  CHECK(pair.info().num_classes == 2);
  CHECK(pair.info().class_names == std::vector<std::string>{"art", "sport"});
  CHECK(input_of(*pair.train, 0) == Ids{257, 'a', 'b', 0});
  CHECK(input_of(*pair.train, 1) == Ids{257, 0xc3, 0xa9, 0});
  CHECK(input_of(*pair.train, 2) == Ids{257, 7, 8, 0});
  const auto label = [&](int64_t i) { return pair.train->get(i).fields[1].second.item<int64_t>(); };
  CHECK(label(0) == 1);
  CHECK(label(1) == 0);
  CHECK(label(2) == 1);
  CHECK(pair.train->where(1).ends_with("a.jsonl, line 3"));
  CHECK(pair.summary() == "3 samples, 2 classes");
}

TEST_CASE("the classes of a validation are those of the training, and numbers are classes too") {
  const Texts texts;
  const auto train = texts.lines(
      "t.jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n{\"text\": \"c\", \"label\": \"z\"}");
  const auto val = texts.lines("v.jsonl", "{\"text\": \"q\", \"label\": \"z\"}");
  const auto pair = open_texts({{"train", train}, {"val", val}});
  CHECK(pair.val->get(0).fields[1].second.item<int64_t>() == 2);
  const auto other = texts.lines("o.jsonl", "{\"text\": \"q\", \"label\": \"w\"}");
  fails_with(
      [&] {
        open_texts({{"train", train}, {"val", other}});
      },
      ErrorKind::Data, "o.jsonl, line 1: the label 'w' does not occur in the training data");
  const auto numbers = texts.lines("n.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 4}");
  const auto split = open_texts({{"train", numbers}, {"val_fraction", 0.5}});
  CHECK(split.info().num_classes == 5);
  CHECK(split.val->get(0).fields[1].second.item<int64_t>() == 4);
  CHECK(split.val->where(0).ends_with("line 2"));
  CHECK(open_texts({{"train", texts.lines("u.jsonl", "{\"text\": \"a\"}")}}).train->get(0).fields.size() == 1);
}

TEST_CASE("a list of tokens is between begin_token and end_token, as a text is, and neither is added twice") {
  const Texts texts;
  const auto path = texts.lines("a.jsonl", "{\"tokens\": [7, 8]}\n{\"tokens\": [5, 8]}\n{\"tokens\": [9, 6]}\n{\"tokens\": [5]}");
  const auto data = open_texts({{"train", path}, {"begin_token", 5}, {"end_token", 6}, {"context", 4}}).train;
  CHECK(input_of(*data, 0) == Ids{5, 7, 8, 6});
  CHECK(input_of(*data, 1) == Ids{5, 8, 6});
  CHECK(input_of(*data, 2) == Ids{5, 9, 6});
  CHECK(input_of(*data, 3) == Ids{5, 6});
  CHECK(input_of(*open_texts({{"train", path}}).train, 0) == Ids{7, 8, 0});
  const auto text = texts.lines("b.jsonl", "{\"text\": \"ab\"}"), list = texts.lines("c.jsonl", "{\"tokens\": [97, 98]}");
  for (const auto& [context, rule] : {std::pair(4, "error"), std::pair(3, "truncate")}) {
    const auto of = [&, context = context, rule = rule](const std::string& file) {
      return input_of(*open_texts({{"train", file}, {"begin_token", 257}, {"context", context}, {"long_documents", rule}}).train, 0);
    };
    CHECK(of(list) == of(text));
  }
  fails_with([&] { open_texts({{"train", path}, {"begin_token", 5}, {"context", 3}}); }, ErrorKind::Data, "the text has 4 tokens");
}

TEST_CASE("prompts and completions: the tokens of both, of which those of the prompt do not count") {
  const Texts texts;
  const auto path = texts.lines("a.jsonl",
                                "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"text\": \"xy\"}\n"
                                "{\"prompt\": [257, 4], \"completion\": [6]}\n{\"prompt\": \"\", \"completion\": \"q\"}");
  const auto data = open_texts({{"train", path}, {"begin_token", 257}, {"end_token", 3}, {"vocab_size", 258}}).train;
  const auto mask = [&](int64_t i) { return ids_of(data->get(i).fields.at(1).second); };
  CHECK(data->get(0).fields.at(1).first == "loss_mask");
  CHECK(input_of(*data, 0) == Ids{257, 'a', 'b', 'c', 'd', 3});
  CHECK(mask(0) == Ids{0, 0, 0, 1, 1, 1});
  CHECK(input_of(*data, 1) == Ids{257, 'x', 'y', 3});
  CHECK(mask(1) == Ids{1, 1, 1, 1});
  CHECK(input_of(*data, 2) == Ids{257, 4, 6, 3});
  CHECK(mask(2) == Ids{0, 0, 1, 1});
  CHECK(input_of(*data, 3) == Ids{257, 'q', 3});
  CHECK(mask(3) == Ids{0, 1, 1});
  const auto cut = open_texts({{"train", path}, {"context", 5}, {"end_token", 3}, {"long_documents", "truncate"}}).train;
  CHECK(input_of(*cut, 0) == Ids{'a', 'b', 'c', 'd', 3});
  const auto shorter = open_texts({{"train", path}, {"context", 4}, {"end_token", 3}, {"long_documents", "truncate"}});
  CHECK(input_of(*shorter.train, 0) == Ids{'a', 'b', 'c', 3});
  CHECK(shorter.summary() == "4 samples, 1 document truncated to 4 tokens");
  const auto says = [&](const std::string& content, const std::string& words, ConfigNode options = {}) {
    options.set("train", ConfigNode(texts.lines("b.jsonl", content)));
    fails_with([&] { open_texts(options); }, ErrorKind::Data, words);
  };
  says("{\"prompt\": \"a\", \"text\": \"b\"}", "line 1: the line has a prompt next to a text or tokens");
  says("{\"completion\": \"b\"}", "line 1: the line has a completion next to a text or tokens, or alone");
  says("{\"prompt\": \"a\"}", "line 1");
  says("{\"prompt\": \"a\", \"completion\": \"\"}", "line 1: the completion is empty");
  says("{\"prompt\": \"abcdef\", \"completion\": \"g\"}", "prompt and completion have 8 tokens, 6 of them before the completion",
       {{"context", 7}});
}

TEST_CASE("the loss mask of a batch is padded with zeros") {
  const Texts texts;
  const auto path = texts.lines("a.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"text\": \"x\"}");
  LoaderOptions options;
  options.batch_size = 2;
  Loader loader(open_texts({{"train", path}, {"pad_token", 9}}).train, {}, options);
  loader.begin_epoch(0);
  const auto batch = *loader.next();
  CHECK(ids_of(batch.input()) == Ids{'a', 'b', 'c', 0, 'x', 0, 9, 9});
  CHECK(ids_of(batch.at("loss_mask")) == Ids{0, 0, 1, 1, 1, 1, 0, 0});
  CHECK(ids_of(batch.at("attention_mask")) == Ids{1, 1, 1, 1, 1, 1, 0, 0});
}

TEST_CASE("chats: the last answer counts, or all answers, also of a chat that is truncated") {
  const Texts texts;
  texts.lines("tokenizer.json", R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
              "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": {"a": 1, "b": 2, ";": 3, ">": 4, "/": 5, "bb": 6},
              "merges": ["b b"]}})");
  texts.lines("tokenizer_config.json", R"({"eos_token": "/", "chat_template":
    "{% for m in messages %}{% if m.role == 'assistant' %}>{% endif %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}>{% endif %}"})");
  const std::string user = R"({"role": "user", "content": ")", assistant = R"({"role": "assistant", "content": ")", end = "\"}";
  const auto path =
      texts.lines("a.jsonl", "{\"messages\": [" + user + "a" + end + ", " + assistant + "b" + end + ", " + user + "aa" + end + ", " +
                                 assistant + "bb" + end + ", " + user + "a" + end + ", " + assistant + "ab" + end + "]}\n");
  const auto open = [&](ConfigNode options) {
    options.set("train", ConfigNode(path));
    options.set("tokenizer", ConfigNode(texts.dir.path().string()));
    return open_texts(std::move(options));
  };
  const auto mask = [](const DatasetPair& pair) { return ids_of(pair.train->get(0).fields.at(1).second); };
  const Ids all{1, 3, 4, 2, 3, 1, 1, 3, 4, 6, 3, 1, 3, 4, 1, 2, 3};
  CHECK(input_of(*open({}).train, 0) == all);
  CHECK(mask(open({})) == Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1});
  const auto answers = open({{"answers", "all"}});
  CHECK(input_of(*answers.train, 0) == all);
  CHECK(mask(answers) == Ids{0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1});
  const auto cut = open({{"answers", "all"}, {"context", 8}, {"long_documents", "truncate"}});
  CHECK(input_of(*cut.train, 0) == Ids{1, 3, 4, 2, 3, 1, 1, 5});
  CHECK(mask(cut) == Ids{0, 0, 0, 1, 1, 0, 0, 0});
  CHECK(cut.summary() == "1 samples, 1 document truncated to 8 tokens");
  fails_with(
      [&] {
        open({{"answers", "all"}, {"context", 8}});
      },
      ErrorKind::Data, "messages have 17 tokens, 3 of them before the answers; allowed: at most 8");
  fails_with(
      [&] {
        open_texts({{"train", texts.tokens("a.bin", {1, 0})}, {"answers", "all"}});
      },
      ErrorKind::Usage, "names files of tokens, and chats are in .jsonl files");
  // An empty answer has no token that a truncated text could keep.
  texts.lines("tokenizer_config.json",
              R"({"eos_token": "/", "chat_template": "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% else %})"
              R"({% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}"})");
  texts.lines("a.jsonl", "{\"messages\": [" + assistant + end + ", " + user + "aa" + end + ", " + assistant + "b" + end + "]}\n");
  CHECK(mask(open({{"answers", "all"}})) == Ids{0, 0, 0, 1});
  fails_with(
      [&] {
        open({{"answers", "all"}, {"context", 3}, {"long_documents", "truncate"}});
      },
      ErrorKind::Data, "messages have 4 tokens, 3 of them before the answers; allowed: at most 3");
}

TEST_CASE("bad lines are one error each") {
  const Texts texts;
  const auto says = [&](const std::string& content, const std::string& words, ConfigNode options = {}) {
    options.set("train", ConfigNode(texts.lines("a.jsonl", content)));
    fails_with([&] { open_texts(options); }, ErrorKind::Data, words);
  };
  says("{\"text\": \"a\"}\n{\"text\": ", "a.jsonl, line 2");
  says("[1]", "a.jsonl, line 1: not a JSON object");
  says("{\"txt\": \"a\"}", "line 1: the line has no text");
  says("{\"text\": \"a\", \"tokens\": [1]}", "line 1: the line has a text and tokens");
  says("{\"text\": \"a\\u0000\"}", "line 1: byte 1 is 0");
  says("{\"text\": 3}", "line 1: text");
  says("{\"tokens\": [1, -1]}", "line 1: token 1 is -1");
  says("{\"text\": \"a\", \"label\": 3}\n{\"text\": \"a\", \"label\": 20000}",
       "line 2: the label is 20000, so that there would be 20,001 classes, and there are 2 samples");
  says("{\"text\": \"a\", \"label\": -1}", "line 1: the label is -1");
  says("{\"text\": \"a\", \"label\": \"\"}", "line 1: the label is an empty text");
  says("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}", "line 2: the line has no label");
  says("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": \"c\"}", "line 2: the label is a text");
  says("{\"text\": \"\"}", "line 1: the text is empty");
  says("{\"text\": \"abcdef\"}", "line 1: the text has 7 tokens; allowed: at most 4", {{"context", 4}});
  says("{\"tokens\": [1, 300]}", "line 1: token 1 is 300; allowed: 0 to 257", {{"vocab_size", 258}});
  says("", "there are no lines");
  const auto good = texts.lines("g.jsonl", "{\"text\": \"abcdef\"}\n{\"text\": \"\"}\n{\"text\": \"a\"}");
  CHECK(open_texts({{"train", good}, {"context", 4}, {"on_bad_sample", "skip"}}).summary() ==
        "1 samples, 1 document omitted (empty), 1 document omitted (longer than 4 tokens)");
  const auto cut = open_texts({{"train", good}, {"context", 4}, {"on_bad_sample", "skip"}, {"long_documents", "truncate"}});
  CHECK(input_of(*cut.train, 0) == Ids{'a', 'b', 'c', 0});
  fails_with([&] { open_texts({{"train", good}, {"long_documents", "split"}}); }, ErrorKind::Usage, "split is for files of tokens");
  texts.tokens("g.bin", {1, 0});
  fails_with([&] { open_texts({{"train", texts.dir.path().string() + "/g.*"}}); }, ErrorKind::Usage, "1 .jsonl files and 1 others");
  fails_with([&] { open_texts({{"train", good}, {"val", texts.path("g.bin")}}); }, ErrorKind::Usage, "another kind");
  fails_with([&] { open_texts({{"train", good}, {"begin_token", 300}, {"vocab_size", 258}}); }, ErrorKind::Usage, "not below vocab_size");
  fails_with([&] { open_texts({{"train", good}, {"mixup_alpha", 0.1}}); }, ErrorKind::Usage, "are for images");
}

TEST_CASE("a batch is padded to its longest sample, or to the longest possible one if shapes must not change") {
  LoaderOptions options;
  options.batch_size = 4;
  Loader loader(std::make_shared<Staircase>(), {}, options);
  loader.begin_epoch(0);
  const auto first = *loader.next(), second = *loader.next(), third = *loader.next();
  CHECK(first.input().sizes() == at::IntArrayRef({4, 4}));
  CHECK(second.input().sizes() == at::IntArrayRef({4, 8}));
  CHECK(third.input().sizes() == at::IntArrayRef({2, 10}));
  CHECK(ids_of(first.input()) == Ids{0, 99, 99, 99, 1, 1, 99, 99, 2, 2, 2, 99, 3, 3, 3, 3});
  CHECK(ids_of(first.at("attention_mask")) == Ids{1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1});
  options.last_batch = LastBatch::Pad;
  Loader fixed(std::make_shared<Staircase>(), {}, options);
  fixed.begin_epoch(0);
  CHECK(fixed.next()->input().sizes() == at::IntArrayRef({4, 12}));
  fixed.next();
  const auto last = *fixed.next();
  CHECK(last.input().sizes() == at::IntArrayRef({4, 12}));
  CHECK(last.at("mask").sum().item<double>() == 2);
}

TEST_CASE("documents are packed by best fit, longest first, into samples with masks and positions of their own") {
  const Texts texts;
  const auto line = [](const std::string& tokens) { return "{\"tokens\": [" + tokens + "]}\n"; };
  // With end_token 0 the documents have 4, 7, 3, 5, 2, 3 and 6 tokens.
  const auto path = texts.lines("a.jsonl", line("11,12,13") + line("21,22,23,24,25,26") + "{\"prompt\": [31], \"completion\": [32]}\n" +
                                               line("41,42,43,44") + line("51") + line("61,62") + line("71,72,73,74,75"));
  const auto pair = open_texts({{"train", path}, {"val", path}, {"context", 10}, {"pad_token", 9}, {"packing", true}});
  const auto data = std::dynamic_pointer_cast<const PackedDocuments>(pair.train);
  REQUIRE(data != nullptr);
  // Lengths in the order of packing, and where each one goes: 7; 6; 5; 4 next to 6; 3 next to 7; 3 next to 5; 2 next to 5 and 3.
  REQUIRE(data->size() == 3);
  CHECK(data->documents(0) == Ids{0, 6});
  CHECK(data->documents(1) == Ids{1, 2});
  CHECK(data->documents(2) == Ids{3, 4, 5});
  CHECK(input_of(*data, 1) == Ids{21, 22, 23, 24, 25, 26, 0, 31, 32, 0});
  const auto field = [&](const char* name) { return ids_of(*npu_train::detail::find_field(data->get(1), name)); };
  CHECK(field("position_ids") == Ids{0, 1, 2, 3, 4, 5, 6, 0, 1, 2});
  CHECK(field("loss_mask") == Ids{0, 1, 1, 1, 1, 1, 1, 0, 1, 1});
  CHECK(data->tokens(1) == 10);
  CHECK(data->where(2).ends_with("a.jsonl, line 4 and 2 other documents"));
  CHECK(data->where(0).ends_with("a.jsonl, line 1 and 1 other document"));
  CHECK(std::dynamic_pointer_cast<const PackedDocuments>(pair.val) != nullptr);
  CHECK(pair.summary() == "3 + 3 samples");

  LoaderOptions options;
  options.batch_size = 1;
  Loader loader(open_texts({{"train", path}, {"context", 11}, {"pad_token", 9}, {"packing", true}}).train, {}, options);
  loader.begin_epoch(0);
  loader.next();
  const auto batch = *loader.next();
  CHECK(batch.input().sizes() == at::IntArrayRef({1, 11}));
  CHECK(ids_of(batch.input()) == Ids{31, 32, 0, 51, 0, 61, 62, 0, 9, 9, 9});
  CHECK(ids_of(batch.at("position_ids")) == Ids{0, 1, 2, 0, 1, 0, 1, 2, 0, 0, 0});
  CHECK(ids_of(batch.at("loss_mask")) == Ids{0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0});
  CHECK(ids_of(batch.at("attention_mask")) == Ids{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
}

TEST_CASE("packed samples have each document once, and their tokens, on several ranks too") {
  const auto stairs = std::make_shared<Staircase>();
  const auto data = std::make_shared<PackedDocuments>(stairs);
  std::vector<int64_t> documents;
  for (int64_t i = 0; i < data->size(); ++i) {
    const auto list = data->documents(i);
    CHECK(std::is_sorted(list.begin(), list.end()));
    CHECK(data->tokens(i) <= 12);
    CHECK(data->get(i).fields[0].second.size(0) == data->tokens(i));
    documents.insert(documents.end(), list.begin(), list.end());
  }
  // 1 to 10 tokens: the sum is 55, and five samples of 12 suffice.
  CHECK(data->size() == 5);
  std::sort(documents.begin(), documents.end());
  CHECK(documents == Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});

  LoaderOptions options;
  options.batch_size = 2;
  options.shuffle = true;
  options.seed = 3;
  Loader one(data, {}, options);
  CHECK(one.samples_per_epoch() == 5);
  const auto all = epoch_of(one, 1);
  REQUIRE(all.size() == 3);
  Loader before(data, {}, options);
  before.begin_epoch(1);
  before.next();
  const auto state = before.state();
  options.world_size = 2;
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    Loader rank(std::make_shared<PackedDocuments>(stairs), Pipeline{}, options);
    rank.load_state(state);
    rank.begin_epoch(rank.epoch(), rank.cursor());
    const auto batch = *rank.next();
    uint64_t digests = 0;
    for (const auto& [name, value] : batch.fields()) digests = digests * 31 + digest(value);
    CHECK(batch.ids == all[static_cast<size_t>(1 + options.rank)].first);
    CHECK(digests == all[static_cast<size_t>(1 + options.rank)].second);
  }
}

TEST_CASE("what cannot be packed is an error") {
  const Texts texts;
  const auto labelled = texts.lines("a.jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}");
  fails_with([&] { open_texts({{"train", labelled}, {"packing", true}}); }, ErrorKind::Usage, "the texts have labels");
  const auto stairs = std::make_shared<Staircase>(9);
  fails_with([&] { PackedDocuments{stairs}; }, ErrorKind::Data, "document 9 has 10 tokens; allowed: 1 to 9");
}

TEST_CASE("positions continue in the middle of an epoch, at another number of ranks") {
  LoaderOptions options;
  options.batch_size = 2;
  options.shuffle = true;
  options.seed = 3;
  Loader one(std::make_shared<Staircase>(), {}, options);
  const auto all = epoch_of(one, 1);
  REQUIRE(all.size() == 5);
  Loader before(std::make_shared<Staircase>(), {}, options);
  before.begin_epoch(1);
  before.next(), before.next();
  const auto state = before.state();
  options.world_size = 2;
  std::vector<Loader> ranks;
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    ranks.emplace_back(std::make_shared<Staircase>(), Pipeline{}, options);
    ranks.back().load_state(state);
    ranks.back().begin_epoch(ranks.back().epoch(), ranks.back().cursor());
  }
  for (size_t i = 2; i < all.size(); ++i) {
    const auto batch = *ranks[i % 2].next();
    uint64_t digests = 0;
    for (const auto& [name, value] : batch.fields()) digests = digests * 31 + digest(value);
    CHECK(batch.ids == all[i].first);
    CHECK(digests == all[i].second);
  }
}
