#include "testing.hpp"

#include <fstream>
#include <string>
#include <vector>

#include "npu_train/io/file.hpp"
#include "npu_train/text/tokenizer.hpp"
#include "sentencepiece_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using PieceIds = std::vector<int64_t>;

const std::string kSpecialPieces =
    piece_of("<unk>", 0, kUnknownPiece) + piece_of("<s>", 0, kControlPiece) + piece_of("</s>", 0, kControlPiece);
// A normalizer_spec that puts a space in front of a text, and keeps all other spaces.
const std::string kOnlyPrefix = text_field_of(3, number_field_of(4, 0));

std::string bpe_model(const std::string& more = "") {
  return kSpecialPieces + piece_of("\u2581", -10) + piece_of("a", -11) + piece_of("b", -12) + piece_of("ab", -1) +
         piece_of("\u2581ab", -2) + piece_of("ba", -1) + piece_of("<U>", 0, kUserPiece) + piece_of("a<U>", -0.5F) + more +
         trainer_of(kBpeModel) + kOnlyPrefix;
}

// A Unigram model of single characters.
std::string character_model(const std::string& normalizer) {
  auto out = kSpecialPieces + piece_of("a<U>", -1) + piece_of("<U>", 0, kUserPiece);
  for (const char* text : {"\u2581", "a", "b", "c", " ", "<", "U", ">"}) out += piece_of(text, -5);
  return out + trainer_of(kUnigramModel) + text_field_of(3, normalizer);
}

// A folder with a model, and settings if there are some.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& model, const std::string& settings = "") {
    write("tokenizer.model", model);
    if (!settings.empty()) write("tokenizer_config.json", settings);
  }
  // Not write_file_atomic(), which waits for the disk.
  void write(const std::string& name, const std::string& content) const { std::ofstream(dir_ / name, std::ios::binary) << content; }
  Tokenizer load() const { return Tokenizer::load(dir_.path()); }
  std::string refusal() const {
    const auto error = error_of([&] { load(); });
    CHECK(error.kind() == ErrorKind::Data);
    CHECK(has(error.what(), dir_.path().string()));
    return error.what();
  }

 private:
  TempDir dir_;
};

std::string refusal_of_model(const std::string& model, const std::string& settings = "") { return ModelFolder(model, settings).refusal(); }

PieceIds ids_of(const std::string& model, const std::string& text, const std::string& settings = "") {
  return ModelFolder(model, settings).load().encode(text).ids;
}

std::string joined_pieces(const std::string& model, const std::string& text, const std::string& settings = "") {
  const auto tokenizer = ModelFolder(model, settings).load();
  std::string out;
  for (const auto id : tokenizer.encode(text).ids) out += tokenizer.token(id).value();
  return out;
}

}  // namespace

TEST_CASE("bpe joins the neighbours with the largest score, and of equal ones the left ones") {
  CHECK(ids_of(bpe_model(), "aba") == PieceIds{7, 4});
  CHECK(ids_of(bpe_model(), "bab") == PieceIds{3, 8, 5});
  CHECK(ids_of(bpe_model(), "ab ab") == PieceIds{7, 7});
  CHECK(ids_of(bpe_model(), "a<U>b") == PieceIds{3, 4, 9, 5});  // a symbol of the user is not joined
  CHECK(ids_of(bpe_model(), "a\u2603\u2603b") == PieceIds{3, 4, 0, 5});
  CHECK(ids_of(bpe_model(), "").empty());
  const auto tokenizer = ModelFolder(bpe_model()).load();
  CHECK(tokenizer.decode({7, 4, 3, 9}) == "aba <U>");
  CHECK(tokenizer.decode({3, 7, 1}, /*skip_special_tokens=*/false) == " ab<s>");
  CHECK(tokenizer.is_special(1));
  CHECK(!tokenizer.is_special(9));
  CHECK(tokenizer.vocabulary_size() == 11);
}

TEST_CASE("a long text has the pieces of a short one, unless a piece joins a space with the character before it") {
  std::string text = "ab";
  PieceIds expected{7};
  for (int i = 0; i < 20'000; ++i) {
    text += " ab";
    expected.push_back(7);
  }
  CHECK(ids_of(bpe_model(), text) == expected);
  // "b▁" is a piece here, with a better score than the others, so "▁ab▁ab" becomes "▁", "a", "b▁", ...
  const auto model = bpe_model(piece_of("b\u2581", -0.1F));
  const auto ids = ids_of(model, text);
  CHECK(ids.size() > 2 * 20'000);
  CHECK(PieceIds(ids.begin(), ids.begin() + 4) == PieceIds{3, 4, 11, 4});
}

TEST_CASE("unigram takes the best sum; symbols of the user are nearly always part of it, unused pieces never") {
  const auto model = kSpecialPieces + piece_of("\u2581", -2) + piece_of("a", -3) + piece_of("b", -3) + piece_of("ab", -4) +
                     piece_of("\u2581ab", -7.5F) + piece_of("bb", 0, kUserPiece) + piece_of("aa", -0.1F, kUnusedPiece) +
                     trainer_of(kUnigramModel);
  CHECK(ids_of(model, "ab") == PieceIds{3, 6});
  CHECK(ids_of(model, "abba") == PieceIds{3, 4, 8, 4});
  CHECK(ids_of(model, "aa") == PieceIds{3, 4, 4});
  CHECK(ids_of(model, "a\u2603\u2603a") == PieceIds{3, 4, 0, 4});
}

TEST_CASE("a symbol of the user has a score by its length, whatever those of the pieces are") {
  const auto model = kSpecialPieces + piece_of("\u2581", -9) + piece_of("a", -0.01F) + piece_of("b", -0.01F) +
                     piece_of("ba", 0, kUserPiece) + trainer_of(kUnigramModel);
  CHECK(ids_of(model, "ba") == PieceIds{3, 6});
}

TEST_CASE("sums of scores are floats") {
  const auto model = kSpecialPieces + piece_of("\u2581", 0) + piece_of("a", -1) + piece_of("b", -1) + piece_of("ab", -2.03F) +
                     piece_of("x", -1e6F) + trainer_of(kUnigramModel);
  CHECK(ids_of(model, "ab") == PieceIds{3, 4, 5});
  // At a million, floats are 1/16 apart: the sums are equal, and the longer piece is offered first.
  CHECK(ids_of(model, "xab") == PieceIds{3, 7, 6});
}

TEST_CASE("a character without a piece becomes bytes, and a stream returns it when it is complete") {
  std::string bytes;
  const std::string digits = "0123456789ABCDEF";
  for (size_t i = 0; i < 256; ++i) bytes += piece_of(std::string("<0x") + digits[i / 16] + digits[i % 16] + ">", 0, kBytePiece);
  for (const auto kind : {kUnigramModel, kBpeModel}) {
    CAPTURE(static_cast<uint64_t>(kind));
    const auto model =
        kSpecialPieces + bytes + piece_of("\u2581", -1) + piece_of("a", -2) + trainer_of(kind, number_field_of(35, 1)) + kOnlyPrefix;
    const auto tokenizer = ModelFolder(model).load();
    CHECK(tokenizer.encode("a\u00e9").ids == PieceIds{259, 260, 3 + 0xC3, 3 + 0xA9});
    CHECK(tokenizer.decode({259, 260, 3 + 0xC3, 3 + 0xA9}) == "a\u00e9");
    CHECK(tokenizer.decode({3 + 0xE2, 3 + 0x98, 260}) == "\ufffd\ufffda");  // one U+FFFD for each byte
    TextStream stream([&](const PieceIds& ids) { return tokenizer.decode(ids); });
    CHECK(stream.next(259).empty());  // the space of the beginning
    CHECK(stream.next(260) == "a");
    CHECK(stream.next(3 + 0xC3).empty());
    CHECK(stream.next(3 + 0xA9) == "\u00e9");
    CHECK(stream.next(259) == " ");
  }
}

TEST_CASE("a stream has the spaces of the whole text") {
  const auto tokenizer = ModelFolder(character_model("")).load();
  TextStream stream([&](const PieceIds& ids) { return tokenizer.decode(ids); });
  const PieceIds ids{5, 5, 6, 5, 5, 7, 5, 8};
  std::string text;
  for (const auto id : ids) text += stream.next(id);
  CHECK(text == tokenizer.decode(ids));
  CHECK(text == "a  b c");
}

TEST_CASE("spaces are added, removed and marked as the normalizer_spec says") {
  const auto spec = [](int prefix, int remove, int escape) {
    return number_field_of(3, static_cast<uint64_t>(prefix)) + number_field_of(4, static_cast<uint64_t>(remove)) +
           number_field_of(5, static_cast<uint64_t>(escape));
  };
  const auto pieces = [](const std::string& normalizer, const std::string& text) {
    return joined_pieces(character_model(normalizer), text);
  };
  CHECK(pieces("", "  a  b ") == "\u2581a\u2581b");  // the defaults of the format
  CHECK(pieces(spec(1, 1, 1), "  a  b ") == "\u2581a\u2581b");
  CHECK(pieces(spec(1, 1, 1), "   ").empty());
  CHECK(pieces(spec(1, 0, 1), "  a  b ") == "\u2581\u2581\u2581a\u2581\u2581b\u2581");
  CHECK(pieces(spec(0, 1, 1), " a b") == "a\u2581b");
  CHECK(pieces(spec(0, 0, 0), " a b") == " a b");
  CHECK(pieces(spec(1, 1, 0), "a  b") == " a b");
  const auto suffix = kSpecialPieces + piece_of("a", -1) + piece_of("\u2581", -1) + trainer_of(kUnigramModel, number_field_of(24, 1));
  CHECK(joined_pieces(suffix, " a a") == "a\u2581a\u2581");
}

TEST_CASE("characters are replaced before, but not in symbols of the user") {
  const auto map = charsmap_of({{"A", "a"}, {"\t", " "}, {"B", "b "}, {"b", "b"}, {"bc", "c"}, {"U", "c"}, {"\x07", ""}});
  const auto pieces = [&](const std::string& text) { return joined_pieces(character_model(text_field_of(2, map)), text); };
  CHECK(pieces("A\tA") == "\u2581a\u2581a");
  CHECK(pieces("\t\tB A") == "\u2581b\u2581a");
  CHECK(pieces("bbc") == "\u2581bc");  // the longest text of the map is replaced
  CHECK(pieces("<U>U") == "\u2581<U>c");
  CHECK(pieces("\x07\x07").empty());
  // A search ends after 1024 bytes, also in a trie with cycles.
  const auto longest = charsmap_of({{std::string(1024, 'a'), "b"}, {std::string(1025, 'a'), "c"}});
  CHECK(joined_pieces(character_model(text_field_of(2, longest)), std::string(1025, 'a')) == "\u2581ba");
}

TEST_CASE("each part of a text between special tokens has the space in front, or with `legacy: false` the first one") {
  const std::string llama = R"({"tokenizer_class": "LlamaTokenizer")";
  CHECK(ids_of(bpe_model(), "ab<s>ab") == PieceIds{7, 1, 7});
  CHECK(ids_of(bpe_model(), "ab<s>ab", llama + "}") == PieceIds{1, 7, 1, 7});
  CHECK(ids_of(bpe_model(), "ab<s>ab", llama + R"(, "legacy": true})") == PieceIds{1, 7, 1, 7});
  CHECK(ids_of(bpe_model(), "ab<s>ab", llama + R"(, "legacy": false})") == PieceIds{1, 7, 1, 6});
  CHECK(ids_of(bpe_model(), "<s>ab", llama + R"(, "legacy": false})") == PieceIds{1, 1, 6});
  CHECK(ids_of(bpe_model(), "ab", llama + R"(, "add_prefix_space": false})") == PieceIds{1, 6});
  // Where spaces are removed, a later part keeps one.
  const auto pieces = [&](const char* legacy) {
    return joined_pieces(character_model(""), " a <s>  b ", llama + R"(, "add_bos_token": false, "legacy": )" + legacy + "}");
  };
  CHECK(pieces("true") == "\u2581a<s>\u2581b");
  CHECK(pieces("false") == "\u2581a<s>\u2581b");
  CHECK(joined_pieces(character_model(""), "a<s>b", llama + R"(, "add_bos_token": false, "legacy": false})") == "\u2581a<s>b");
  const auto without_prefix = [&](const char* legacy) {
    return joined_pieces(character_model(""), "a<s>  b",
                         llama + R"(, "add_bos_token": false, "add_prefix_space": false, "legacy": )" + legacy + "}");
  };
  CHECK(without_prefix("true") == "a<s>b");
  CHECK(without_prefix("false") == "a<s>\u2581b");
}

TEST_CASE("the class of the tokenizer says what surrounds a text, and two texts") {
  const auto model = kSpecialPieces + piece_of("[CLS]", 0, kControlPiece) + piece_of("[SEP]", 0, kControlPiece) + piece_of("\u2581", -1) +
                     piece_of("a", -2) + piece_of("b", -2) + piece_of("\"", -2) + piece_of("1", -2) + piece_of("1,", -3) +
                     piece_of(",", -9) + trainer_of(kUnigramModel);
  const auto both = [&](const std::string& settings) {
    const auto tokenizer = ModelFolder(model, settings).load();
    const auto pair = tokenizer.encode_pair("a", "b");
    std::string out;
    for (size_t i = 0; i < pair.ids.size(); ++i)
      out += (i == 0 ? "" : " ") + tokenizer.token(pair.ids[i]).value() + std::to_string(pair.types[i]);
    return out;
  };
  CHECK(both("{}") == "\u25810 a0 \u25811 b1");
  CHECK(both(R"({"add_bos_token": true})") == "<s>0 \u25810 a0 <s>1 \u25811 b1");
  CHECK(both(R"({"tokenizer_class": "LlamaTokenizerFast", "add_eos_token": true})") == "<s>0 \u25810 a0 </s>0 <s>1 \u25811 b1 </s>1");
  CHECK(both(R"({"tokenizer_class": "T5Tokenizer", "eos_token": "</s>"})") == "\u25810 a0 </s>0 \u25810 b0 </s>0");
  CHECK(both(R"({"tokenizer_class": "AlbertTokenizer"})") == "[CLS]0 \u25810 a0 [SEP]0 \u25811 b1 [SEP]1");
  CHECK(both(R"({"tokenizer_class": "XLNetTokenizer", "sep_token": "[SEP]", "cls_token": {"content": "[CLS]"}})") ==
        "\u25810 a0 [SEP]0 \u25811 b1 [SEP]1 [CLS]2");
  const std::string albert = R"({"tokenizer_class": "AlbertTokenizer")";
  CHECK(joined_pieces(model, "``A'' \u00e4", albert + "}") == "[CLS]\u2581\"a\"\u2581a[SEP]");
  CHECK(ids_of(model, "1,1", albert + "}") == PieceIds{3, 5, 9, 11, 9, 4});  // the comma behind a digit is a piece
  CHECK(ids_of(model, "1,1") == PieceIds{5, 10, 9});
  const ModelFolder folder(model);
  folder.write("config.json", R"({"model_type": "mistral"})");
  CHECK(folder.load().encode("a").ids == PieceIds{1, 5, 6});
  const auto gemma = kSpecialPieces + piece_of("<bos>", 0, kControlPiece) + piece_of("<eos>", 0, kControlPiece) + piece_of("\u2581", -1) +
                     piece_of("a", -2) + trainer_of(kUnigramModel);
  CHECK(joined_pieces(gemma, "a", R"({"tokenizer_class": "GemmaTokenizer", "add_eos_token": true})") == "<bos>\u2581a<eos>");
}

TEST_CASE("added tokens come from the files next to the model") {
  const std::string added =
      R"("added_tokens_decoder": {"11": {"content": "<x>", "special": true, "rstrip": true}, "1": {"content": "<s>", "normalized": true}})";
  const auto tokenizer = ModelFolder(bpe_model(), R"({"pad_token": "<U>", )" + added + "}").load();
  CHECK(tokenizer.encode("ab<x> ab<s>").ids == PieceIds{7, 11, 7, 1});
  CHECK(tokenizer.decode({7, 11}) == "ab");
  CHECK(tokenizer.is_special(9));  // named as a special token
  CHECK(tokenizer.vocabulary_size() == 12);
  const ModelFolder older(bpe_model(), R"({"additional_special_tokens": ["<y>"]})");
  older.write("added_tokens.json", R"({"<y>": 12, "<z>": 11})");
  CHECK(older.load().encode("ab<y>ab<z>").ids == PieceIds{7, 12, 7, 11});
  CHECK(older.load().is_special(12));
  CHECK(!older.load().is_special(11));
  const auto sentinels = ModelFolder(bpe_model(), R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 2})").load();
  CHECK(sentinels.encode("<extra_id_0>ab<extra_id_1>").ids == PieceIds{12, 7, 11, 2});
  CHECK(sentinels.encode("ab <extra_id_0> ab").ids == PieceIds{7, 12, 7, 2});
  const auto refused = refusal_of_model(bpe_model(), R"({"added_tokens_decoder": {"3": {"content": "<x>"}}})");
  CHECK(has(refused, "another token with it"));
  CHECK(has(refused, "the added tokens of the files next to it: token [3]"));
  CHECK(has(refusal_of_model(bpe_model(), R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"), "'x' is not an id"));
}

TEST_CASE("a tokenizer.json comes before a model, and a file is what its name says") {
  const ModelFolder folder(bpe_model());
  folder.write("spiece.model", "damaged");
  CHECK(folder.load().encode("ab").ids == PieceIds{7});
  folder.write("tokenizer.json", "{}");
  CHECK(has(folder.refusal(), "tokenizer.json"));
  const TempDir dir;
  CHECK(!tokenizer_file(dir.path()));
  CHECK(has(error_of([&] { Tokenizer::load(dir.path()); }).what(), "tokenizer.json"));
  write_file_atomic(dir / "tokenizer.model.v3", bpe_model());
  CHECK(Tokenizer::load(dir / "tokenizer.model.v3").encode("ab").ids == PieceIds{7});
  write_file_atomic(dir / "spiece.model", bpe_model());
  CHECK(tokenizer_file(dir.path()) == dir / "spiece.model");
}

TEST_CASE("what is not supported in a model is named, with its place") {
  CHECK(has(refusal_of_model(""), "0 unknown pieces; allowed: one"));
  CHECK(has(refusal_of_model("IQ== 0\nIg== 1\n"), "the field 9 is not supported"));  // the vocabulary of tiktoken has the same name
  CHECK(has(refusal_of_model(bpe_model(text_field_of(7, ""))), "the field 7 is not supported"));
  CHECK(has(refusal_of_model(bpe_model(text_field_of(3, number_field_of(9, 1)))), "normalizer_spec: the field 9 is not supported"));
  CHECK(has(refusal_of_model(bpe_model(text_field_of(2, text_field_of(3, "2")))), "trainer_spec: the field 3 is not supported"));
  CHECK(has(refusal_of_model(bpe_model(text_field_of(2, number_field_of(3, 4)))), "model_type is 4 (char); allowed: 1 (unigram), 2 (bpe)"));
  CHECK(has(refusal_of_model(bpe_model(text_field_of(5, text_field_of(2, "x")))), "denormalizer_spec: replacements"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("", -1))), "piece 11: the text is empty"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("\xff", -1))), "piece 11: the text is not UTF-8"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("ab", -1))), "the token 'ab' has the ids 6 and 11"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("x", std::numeric_limits<float>::quiet_NaN()))), "piece 11: the score is nan"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("x", 0, kUnknownPiece))), "2 unknown pieces"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("x", 0, kUnusedPiece))), "piece 11 'x' is unused"));
  CHECK(has(refusal_of_model(bpe_model(piece_of("<0x00>", 0, kBytePiece))), "is a byte, and byte_fallback is false"));
  CHECK(has(refusal_of_model(bpe_model(text_field_of(1, text_field_of(1, "x") + number_field_of(3, 7)))), "piece 11: the type is 7"));
  CHECK(has(refusal_of_model(bpe_model(trainer_of(kBpeModel, number_field_of(35, 1)))),
            "byte_fallback needs a piece for each byte, and 0 has none"));
  CHECK(has(refusal_of_model(bpe_model(text_field_of(3, text_field_of(2, "abc")))), "precompiled_charsmap: 3 bytes"));
  CHECK(has(refusal_of_model(bpe_model(piece_of(std::string(20'000, 'x'), -1))), "the token 11 has 20000 bytes"));
  std::string controls;
  for (int i = 0; i < 100'000; ++i) controls += piece_of("<" + std::to_string(i) + ">", 0, kControlPiece);
  CHECK(has(refusal_of_model(bpe_model(controls)), "more than 100000 special and added tokens"));
}

TEST_CASE("what is not supported in the settings is named, with its place") {
  const auto refused = [](const std::string& settings) { return refusal_of_model(bpe_model(), settings); };
  CHECK(has(refused("[]"), "tokenizer_config.json"));
  CHECK(has(refused(R"({"tokenizer_class": "XLMRobertaTokenizerFast"})"), "'XLMRobertaTokenizer' is not supported"));
  CHECK(has(refused(R"({"tokenizer_class": 3})"), "tokenizer_class"));
  CHECK(has(refused(R"({"legacy": "yes"})"), "tokenizer_config.json: legacy"));
  CHECK(has(refused(R"({"sp_model_kwargs": {"enable_sampling": true}})"), "sp_model_kwargs is not supported"));
  CHECK(has(refused(R"({"split_special_tokens": true})"), "split_special_tokens is not supported"));
  CHECK(has(refused(R"({"tokenizer_class": "AlbertTokenizer"})"), "the cls_token '[CLS]' is not a token"));
  CHECK(has(refused(R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 100000})"), "extra_ids is 100000; allowed: 0 to 10000"));
  const ModelFolder folder(bpe_model());
  folder.write("config.json", R"({"model_type": "xlm-roberta"})");
  CHECK(has(folder.refusal(), "the model_type 'xlm-roberta' is not supported"));
  folder.write("config.json", "{}");
  folder.write("added_tokens.json", R"({"<y>": "12"})");
  CHECK(has(folder.refusal(), "added_tokens.json"));
}

TEST_CASE("a model that ends anywhere, or has another byte anywhere, is read or refused") {
  const auto map = charsmap_of({{"A", "a"}});
  const auto model = kSpecialPieces + piece_of("\u2581", -2) + piece_of("ab", -4) + piece_of("<U>", 0, kUserPiece) + piece_of("a", -5) +
                     text_field_of(2, number_field_of(3, kBpeModel)) + text_field_of(3, text_field_of(2, map) + number_field_of(4, 1));
  ModelFolder folder(model);
  int read = 0, refused = 0, others = 0;
  const auto attempt = [&](const std::string& damaged) {
    folder.write("tokenizer.model", damaged);
    try {
      const auto tokenizer = folder.load();
      tokenizer.decode(tokenizer.encode("ab A<U> \t\u2603<s>").ids);
      ++read;
    } catch (const Error& e) {
      ++(e.kind() == ErrorKind::Data ? refused : others);
    }
  };
  // Most of the trie is zeros, so every seventh byte of it is enough.
  const size_t trie = model.find(map) + 8, end = model.size() - 16;
  for (size_t i = 0; i < model.size(); i += trie < i && i < end ? 7 : 1) {
    attempt(model.substr(0, i));
    for (const int bits : {0x01, 0x08, 0x80, 0xFF}) {
      auto damaged = model;
      damaged[i] = static_cast<char>(damaged[i] ^ bits);
      attempt(damaged);
    }
  }
  CHECK(others == 0);
  CHECK(refused > 300);
  CHECK(read > 300);
}
