// Text to token ids and back.
//
//   auto tokenizer = llm::load_tokenizer("models/stories260K/tok512.bin");
//   std::vector<int32_t> ids = tokenizer->encode("Once upon a time", tokenizer->adds_bos());
//   llm::StreamDecoder stream(*tokenizer);
//   for (int32_t id : ids) std::cout << stream.push(id);
//   std::cout << stream.finish();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llm/tokenizer/vocabulary.hpp"

namespace llm {

// Immutable after loading, so any number of threads may use one.
class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of `text`, which may hold any bytes. Control tokens spelled out in the text are plain
  // characters, so that a user's text can't forge them, unless `parse_special` (for chat
  // templates). Throws kInvalidArgument if `add_bos` but the vocabulary has no BOS token, and for a
  // byte that no token stands for.
  std::vector<int32_t> encode(std::string_view text, bool add_bos,
                              bool parse_special = false) const;

  // The bytes that `id` stands for; nothing for control tokens. May be part of a UTF-8 character.
  // Throws kInvalidArgument for an id outside the vocabulary.
  std::string_view decode(int32_t id) const { return vocabulary_.token(id).bytes; }

  int32_t vocab_size() const { return vocabulary_.size(); }
  int32_t bos_id() const { return vocabulary_.bos_id; }  // -1 = none
  const std::vector<int32_t>& eos_ids() const { return vocabulary_.eos_ids; }
  bool adds_bos() const { return vocabulary_.adds_bos; }  // what the model was trained with
  // Encoding puts a space before the text, which decoding a whole text takes away again.
  bool adds_space_prefix() const { return vocabulary_.adds_space_prefix; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  // Appends the ids of text without special tokens; not empty.
  virtual void encode_plain(std::string_view text, std::vector<int32_t>& ids) const = 0;

 private:
  Vocabulary vocabulary_;
};

// Text out of ids as they come, always whole UTF-8 characters: the head of a character waits for
// the rest, and bytes that can't become one are U+FFFD.
class StreamDecoder {
 public:
  // `at_start`: the first pushed token begins the text, so a space prefix is dropped from it.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool at_start = true)
      : tokenizer_(&tokenizer), at_start_(at_start && tokenizer.adds_space_prefix()) {}

  std::string push(int32_t id);
  // What still waits at the end, as U+FFFD; the decoder can then be used for another text's middle.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool at_start_;
  std::string pending_;  // fewer than 4 bytes: the head of a character
};

// The bytes of several ids put together, without the space prefix.
std::string decode_all(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);

// Loads the tokenizer embedded in a GGUF file (SentencePiece or byte-level BPE), a llama2.c
// tokenizer .bin, a Hugging Face tokenizer.json (byte-level BPE), or Llama 3's tokenizer.model; the
// latter two also from the directory they are in. Throws rapt::Error: kIo for an unreadable,
// truncated or contradictory file, kInvalidArgument for what is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace llm
