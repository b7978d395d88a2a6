// Trains a language model on text files, generates text with it and exports it: language TEXT_FILE...
#include <cstdio>

#include <npu_train/base/input_spec.hpp>
#include <npu_train/data/tokens.hpp>
#include <npu_train/export/onnx.hpp>
#include <npu_train/io/file.hpp>
#include <npu_train/nn/generate.hpp>
#include <npu_train/trainer.hpp>

int main(int argc, char** argv) try {
  npu_train::check(argc > 1, npu_train::ErrorKind::Usage, "language", "give text files");
  std::vector<int64_t> tokens;
  for (int i = 1; i < argc; ++i) {
    const auto document = npu_train::document_tokens(npu_train::read_file(argv[i], /*max_bytes=*/1 << 30), argv[i]);
    tokens.insert(tokens.end(), document.begin(), document.end());
  }
  npu_train::save_tokens("tokens.bin", tokens);

  npu_train::Trainer trainer(
      {.precision = "32-true",
       .model = {.name = "gpt2_tiny"},
       .data = {.name = "tokens", .options = {{"train", "tokens.bin"}, {"val_fraction", 0.1}, {"context", 64}, {"batch_size", 32}}},
       .task = {.name = "language_model"},
       .optimizer = {.name = "adamw", .options = {{"lr", 3e-3}}},
       .trainer = {.max_epochs = 2}});
  const auto result = trainer.fit();
  std::printf("perplexity %.2f\n", npu_train::scalar_or(result.final_val, "perplexity", 0));

  const auto more = npu_train::generate(trainer.model(), npu_train::byte_tokens("The "), {.sampling = {.temperature = 0.8}, .seed = 1});
  std::printf("The %s\n", npu_train::text_of_bytes(more).c_str());
  npu_train::export_onnx(trainer.model(), npu_train::example_batch(trainer.model().inputs), "language.onnx");
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
