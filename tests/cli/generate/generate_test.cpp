// rapt generate as a user meets it: what goes to stdout, to stderr and to the shell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/source_dir.hpp"

namespace {

using testing::HasSubstr;

const std::string kFolder = RAPT_SOURCE_DIR "/models/stories260K/";
const std::string kBin = "--model " + kFolder + "stories260K.bin ";
const std::string kGguf = "--model " + kFolder + "stories260Ktok512.gguf ";

struct Outcome {
  int exit_code;
  std::string out, err;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "rapt_generate_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  Outcome run(const std::string& arguments, const std::string& environment = "") const {
    const std::string command =
        environment + " " RAPT_TOOL " generate " + arguments + " 2> " + path("err");
    FILE* pipe = popen(command.c_str(), "r");
    Outcome outcome;
    std::array<char, 4096> buffer;
    for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      outcome.out.append(buffer.data(), n);
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.err = read_file(path("err"));
    return outcome;
  }

  void expect_refusal(const std::string& arguments, const std::string& words) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(words)) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }

 private:
  std::string folder_;
};

TEST_F(Generate, prints_the_greedy_story_and_nothing_else) {
  const std::string expected = read_file(kFolder + "greedy_256.txt");
  for (const std::string& model : {kBin, kGguf}) {
    const Outcome outcome = run(model + "--max-tokens 257 --temperature 0 --threads 2");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, expected);
    EXPECT_THAT(outcome.err, HasSubstr("prefill 1 tokens, "));
    EXPECT_THAT(outcome.err, HasSubstr("decode 256 tokens, "));
    EXPECT_THAT(outcome.err, HasSubstr("attention "));
    EXPECT_THAT(outcome.err, HasSubstr("pages used 17, shared 0\n"));
  }
}

TEST_F(Generate, every_instruction_set_can_be_forced) {
  const std::string expected = read_file(kFolder + "greedy_256.txt");
  const std::string arguments = kBin + "--max-tokens 257 --temperature 0 --threads 1";
  EXPECT_EQ(run(arguments, "RAPT_CPU_ISA=baseline").out, expected);
  EXPECT_EQ(run(arguments + " --isa baseline").out, expected);
  EXPECT_EQ(run(arguments + " --backend reference --page-size 1").out, expected);
}

TEST_F(Generate, several_prompts_come_in_order_under_headings) {
  const Outcome outcome = run(kBin + "--max-tokens 3 --temperature 0 --prompt '' --prompt 'Tim'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string alone = run(kBin + "--max-tokens 3 --temperature 0 --prompt 'Tim'").out;
  EXPECT_EQ(outcome.out, "== 1: \nOnce upon a\n== 2: Tim\n" + alone);

  std::ofstream(path("prompts")) << "\nTim\n";
  EXPECT_EQ(run(kBin + "--max-tokens 3 --temperature 0 --prompts " + path("prompts")).out,
            outcome.out);
}

// The next text is no part of this one, whichever file the model is in.
TEST_F(Generate, bos_ends_a_text_in_every_format) {
  const std::string arguments = "--max-tokens 500 --temperature 0 --json --prompt 'Tim was'";
  const auto bin = nlohmann::json::parse(run(kBin + arguments).out)["generations"][0],
             gguf = nlohmann::json::parse(run(kGguf + arguments).out)["generations"][0];
  EXPECT_EQ(bin["stopped"], true);
  EXPECT_LT(bin["tokens"].size(), 300u);
  EXPECT_EQ(gguf["stopped"], true);
  EXPECT_EQ(gguf["tokens"], bin["tokens"]);
}

TEST_F(Generate, json_is_one_object_with_texts_and_figures) {
  const Outcome outcome = run(
      kBin + "--max-tokens 20 --seed 3 --top-k 20 --prompt 'One day' --prompt 'One day' --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["generations"].size(), 2u);
  // The same seed, so the same text.
  EXPECT_EQ(json["generations"][0]["tokens"], json["generations"][1]["tokens"]);
  EXPECT_EQ(json["generations"][0]["tokens"].size(), 20u);
  EXPECT_EQ(json["generations"][0]["stopped"], false);
  EXPECT_EQ(json["figures"]["decode_tokens"], 38);
  EXPECT_GT(json["figures"]["decode_tokens_per_s"], 0);
  EXPECT_EQ(json["figures"]["backend"], "cpu");
  const auto again = nlohmann::json::parse(
      run(kBin + "--max-tokens 20 --seed 3 --top-k 20 --prompt 'One day' --json").out);
  EXPECT_EQ(again["generations"][0]["text"], json["generations"][0]["text"]);
}

TEST_F(Generate, no_tokens_may_be_asked_for) {
  const Outcome outcome = run(kBin + "--max-tokens 0 --prompt Tim");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "\n");
}

TEST_F(Generate, stats_name_the_backend_and_why) {
  const Outcome outcome = run(kBin + "--max-tokens 2 --stats");
  EXPECT_THAT(outcome.err, HasSubstr("backend: \"cpu\""));
  EXPECT_THAT(outcome.err, HasSubstr("reference"));
}

TEST_F(Generate, no_mass_at_all_is_the_likeliest_token) {
  EXPECT_EQ(run(kBin + "--max-tokens 8 --top-p 0").out,
            run(kBin + "--max-tokens 8 --temperature 0").out);
}

TEST_F(Generate, bad_arguments_are_exit_code_2) {
  expect_refusal("", "--model is required");
  expect_refusal(kBin + "--temperature -1", "temperature");
  expect_refusal(kBin + "--max-tokens -1", "--max-tokens");
  expect_refusal(kBin + "--top-k -1", "--top-k");
  for (const char* value : {"-1", "18446744073709551616", "99999999999999999999999", "1.5", "x"})
    expect_refusal(kBin + "--max-tokens 2 --seed " + value, "--seed");
  for (const char* value : {"-0.5", "2", "nan"})
    expect_refusal(kBin + "--max-tokens 2 --top-p " + value, "top");
  for (const char* value : {"-0.5", "1.5", "nan"})
    expect_refusal(kBin + "--max-tokens 2 --min-p " + value, "min");
  expect_refusal(kBin + "--page-size 0", "--page-size");
  expect_refusal(kBin + "--kv-dtype fp3", "fp3");
  expect_refusal(kBin + "--isa mmx", "mmx");
  expect_refusal(kBin + "--backend nosuch", "nosuch");
  expect_refusal(kBin + "--prompt a --prompts b", "--prompts");
  expect_refusal(kBin + "--prompts " + path("missing"), "missing");
  expect_refusal(kBin + "--num-pages 2", "pages");
  expect_refusal(kBin + "--num-pages 9000000000000", "--num-pages");
}

TEST_F(Generate, devices_that_are_not_here_are_refused) {
  for (const char* device : {"toaster", "h100", "cpu-baseline", "cuda:x"})
    expect_refusal(kBin + "--device " + device, "device is \"" + std::string(device) + "\": ");
  expect_refusal(kBin + "--kv-dtype fp8_e4m3", "kv_format is fp8_e4m3");
  expect_refusal(kBin + "--backend flashinfer", "not built");
}

TEST_F(Generate, a_prompt_longer_than_the_context_is_refused) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "Tim ";
  expect_refusal(kBin + "--prompt '" + text + "'", "context is 512");
  // Nor is memory asked for first, which there may not be.
  expect_refusal(kBin + "--page-size 1048576 --num-pages 2000000000 --prompt '" + text + "'",
                 "context is 512");
}

TEST_F(Generate, a_directory_may_hold_one_gguf_file) {
  const std::string folder = path("model");
  std::filesystem::create_directory(folder);
  const std::string arguments = "--model " + folder + " --max-tokens 8 --temperature 0";
  expect_refusal(arguments, "nor one .gguf file");
  std::filesystem::copy(kFolder + "stories260Ktok512.gguf", folder + "/a.gguf");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run(kGguf + "--max-tokens 8 --temperature 0").out);
  std::filesystem::copy(kFolder + "stories260Ktok512.gguf", folder + "/b.gguf");
  expect_refusal(arguments, "several .gguf files");
}

TEST_F(Generate, a_refusal_among_several_prompts_prints_nothing_else) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "Tim ";
  expect_refusal(kBin + "--prompt Tim --prompt '" + text + "'", "context is 512");
}

TEST_F(Generate, text_that_cannot_be_written_is_exit_code_1) {
  const Outcome outcome = run(kBin + "--max-tokens 3 > /dev/full");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot be written"));
}

TEST_F(Generate, the_largest_seed_is_a_seed) {
  EXPECT_EQ(run(kBin + "--max-tokens 2 --seed 18446744073709551615").exit_code, 0);
}

// Nor is the rest of the text made, whose figures would be printed.
TEST_F(Generate, a_reader_that_left_is_exit_code_1_in_silence) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  close(pipe_ends[0]);
  const std::string to_pipe = "bash -c 'exec \"$@\" >&" + std::to_string(pipe_ends[1]) + "' bash";
  for (const char* option : {"", " --json"}) {
    const Outcome outcome = run(kBin + "--max-tokens 40" + option, to_pipe);
    EXPECT_EQ(outcome.exit_code, 1) << option;
    EXPECT_EQ(outcome.err.find("cannot be written"), outcome.err.npos) << outcome.err;
    if (!*option) {
      EXPECT_EQ(outcome.err, "");
    }
  }
  close(pipe_ends[1]);
}

TEST_F(Generate, missing_and_hostile_files_are_exit_code_2) {
  expect_refusal("--model " + path("missing.gguf"), "missing.gguf");
  std::filesystem::copy(kFolder + "stories260K.bin", path("alone.bin"));
  expect_refusal("--model " + path("alone.bin"), "--tokenizer");

  const std::string gguf = read_file(kFolder + "stories260Ktok512.gguf");
  std::ofstream(path("short.gguf"), std::ios::binary) << gguf.substr(0, gguf.size() / 2);
  expect_refusal("--model " + path("short.gguf"), "short.gguf");
  const std::string tokenizer = read_file(kFolder + "tok512.bin");
  std::ofstream(path("short.tok"), std::ios::binary) << tokenizer.substr(0, tokenizer.size() / 2);
  expect_refusal(kBin + "--tokenizer " + path("short.tok"), "short.tok");
  std::ofstream(path("text.gguf")) << "no model";
  expect_refusal("--model " + path("text.gguf"), "does not begin with GGUF");
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  expect_refusal("--model " + path("fifo"), "is not a regular file");
  expect_refusal(kBin + "--tokenizer " + path("fifo"), "is not a regular file");
  expect_refusal(kBin + "--prompts " + path("fifo"), "is not a regular file");
  std::ofstream(path("empty.bin"));
  expect_refusal("--model " + path("empty.bin") + " --tokenizer " + kFolder + "tok512.bin",
                 "empty.bin");
}

#ifdef RAPT_EMULATOR_LIBRARY

constexpr const char* kEmulated = "--device emulated-sm80 ";
// What was compiled for one test serves the others, too.
const std::string kKeptKernels = "RAPT_CACHE_DIR=" RAPT_KERNEL_CACHE " ";

int count(const std::string& text, const std::string& part) {
  int times = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) times++;
  return times;
}

TEST_F(Generate, an_emulated_gpu_tells_the_story_and_says_once_that_it_compiles) {
  const std::string arguments = kBin + kEmulated + "--temperature 0 --max-tokens 8",
                    cache = path("cache");
  const Outcome first = run(arguments, "RAPT_CACHE_DIR=" + cache);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  const std::string story = read_file(kFolder + "greedy_256.txt");
  EXPECT_EQ(first.out, story.substr(0, first.out.size() - 1) + "\n");
  EXPECT_EQ(first.out, run(kBin + "--temperature 0 --max-tokens 8").out);
  EXPECT_EQ(count(first.err, "compiling"), 1) << first.err;
  const Outcome again = run(arguments + " --json", "RAPT_CACHE_DIR=" + cache);
  EXPECT_EQ(count(again.err, "compiling"), 0) << again.err;
  const auto figures = nlohmann::json::parse(again.out)["figures"];
  EXPECT_EQ(figures["backend"], "flash_attention");
  EXPECT_EQ(figures["kv_format"], "float16");
}

// Prompts that are prefilled, pages that are shared and left behind, chunks.
TEST_F(Generate, an_emulated_gpu_generates_several_texts_as_the_cpu_does) {
  const std::string arguments =
      kBin +
      "--temperature 0 --max-tokens 4 --kv-dtype bf16 --page-size 4 --tokens-per-step 10 "
      "--prompt 'Lily and Tom' --prompt 'Lily and Tom went to the park' ";
  const Outcome emulated = run(arguments + kEmulated, kKeptKernels);
  EXPECT_EQ(emulated.exit_code, 0) << emulated.err;
  EXPECT_EQ(emulated.out, run(arguments).out);
}

// A GPU whose memory the host does not reach: the emulator in place of NVIDIA's driver and
// compiler, and a stand-in for cuBLASLt.
const std::string kDriver =
    kKeptKernels + "RAPT_LIBCUDA=" RAPT_EMULATOR_LIBRARY " RAPT_NVRTC=" RAPT_EMULATOR_LIBRARY " ";
const std::string kGpu = kDriver + "RAPT_CUBLASLT=" FAKE_LIBCUBLAS_LT " ";

TEST_F(Generate, a_gpu_with_all_layers_tells_the_whole_story) {
  const Outcome outcome = run(kBin + "--temperature 0 --max-tokens 257 --device cuda:1", kGpu);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, read_file(kFolder + "greedy_256.txt"));
  // Nothing waits for the attention, so nobody knows its time.
  EXPECT_EQ(count(outcome.err, "attention "), 0) << outcome.err;
}

// Prompts of different lengths, chunks without logits, pages shared; another file format.
TEST_F(Generate, a_gpu_with_all_layers_generates_several_texts_as_the_cpu_does) {
  const std::string arguments =
      kGguf +
      "--temperature 0 --max-tokens 6 --kv-dtype bf16 --page-size 4 --tokens-per-step 10 --json "
      "--prompt 'Lily and Tom' --prompt 'Lily and Tom went to the park' ";
  const Outcome outcome = run(arguments + "--device cuda:1", kGpu);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out),
             expected = nlohmann::json::parse(run(arguments).out);
  EXPECT_EQ(json["generations"], expected["generations"]);
  EXPECT_EQ(json["figures"]["dense"], "device");
  EXPECT_EQ(expected["figures"]["dense"], "host");
  EXPECT_TRUE(json["figures"]["attention_share"].is_null());
  EXPECT_GT(expected["figures"]["attention_share"], 0);
}

TEST_F(Generate, a_gpus_dense_layers_may_be_kept_on_the_host) {
  const std::string arguments = kBin + "--temperature 0 --max-tokens 8 ";
  const Outcome outcome = run(arguments + "--device cuda:1 --dense host", kDriver);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run(arguments).out);
  EXPECT_EQ(count(outcome.err, "attention "), 1) << outcome.err;
}

TEST_F(Generate, without_cublas_lt_is_exit_code_1_and_says_how_to_do_without) {
  const Outcome outcome = run(kBin + "--max-tokens 8 --device cuda:1",
                              kDriver + "RAPT_CUBLASLT=/nowhere/libcublasLt.so.13");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/libcublasLt.so.13"));
  EXPECT_THAT(outcome.err, HasSubstr("--dense host"));
}

TEST_F(Generate, dense_layers_on_a_device_want_a_gpu) {
  for (const char* device : {"--device cpu ", kEmulated})
    expect_refusal(kBin + device + "--dense device", "dense is device");
  expect_refusal(kBin + "--dense cloud", "cloud");
}

TEST_F(Generate, what_gpus_cannot_do_is_refused_with_reasons) {
  expect_refusal(kBin + kEmulated + "--kv-dtype fp32", "dtype is float32");
  expect_refusal(kBin + kEmulated + "--isa baseline", "isa is given");
  expect_refusal(kBin + "--device emulated-sm75", "compute_capability is 7.5: must be 8.0 or more");
  expect_refusal(kBin + "--device emulated-sm42", "no emulated device of compute capability 42");
}

TEST_F(Generate, a_machine_without_a_driver_is_exit_code_1_and_names_the_library) {
  const Outcome outcome =
      run(kBin + "--device cuda --max-tokens 8", "RAPT_LIBCUDA=/nowhere/libcuda.so.1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/libcuda.so.1"));
  EXPECT_THAT(outcome.err, HasSubstr("install NVIDIA's driver"));
}

TEST_F(Generate, emulated_gpus_without_a_compiler_are_exit_code_1_and_name_what_to_install) {
  const Outcome outcome =
      run(kBin + kEmulated + "--max-tokens 2", "PATH=/nowhere RAPT_CACHE_DIR=" + path("none"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("no C++ compiler"));
  EXPECT_THAT(outcome.err, HasSubstr("install g++"));
}

#endif

}  // namespace
